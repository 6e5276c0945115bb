package storetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/joblease/joblease"
)

// storing lets text be stored as keep has it: names and labels.
func storing(keep func(string) string) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			asked := c
			c.Name, c.Holder = keep(c.Name), keep(c.Holder)
			g, err := b.Memory.Acquire(ctx, c)
			g.Name, g.Holder = asked.Name, asked.Holder
			var h *joblease.HeldError
			if errors.As(err, &h) {
				h.Name = asked.Name
			}
			return g, err
		}
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			g.Name = keep(g.Name)
			return b.Memory.Renew(ctx, g)
		}
		b.release = func(ctx context.Context, g joblease.Grant) error {
			g.Name = keep(g.Name)
			return b.Memory.Release(ctx, g)
		}
	}
}

func cut(s string) string { return s[:min(len(s), joblease.MaxNameLen)] }

// listing lets change edit what List returns.
func listing(change func([]joblease.Record) []joblease.Record) func(b *broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context) ([]joblease.Record, error) {
			records, err := b.Memory.List(ctx)
			return change(records), err
		}
	}
}

var nameFaults = []fault{
	{"names are compared without case", []string{
		"names are exact text, and each is a lease of its own",
	}, storing(strings.ToLower)},
	{"names are padded", []string{
		"names are exact text, and each is a lease of its own",
		"a holder's label is kept as exact text",
	}, storing(func(s string) string { return strings.TrimRight(s, " ") })},
	{"names are composed", []string{
		"names are exact text, and each is a lease of its own",
	}, storing(func(s string) string { return strings.ReplaceAll(s, "o\u0301", "ó") })},
	{"names are cut at 254 bytes", []string{
		"names are exact text, and each is a lease of its own",
	}, storing(func(s string) string { return s[:min(len(s), 254)] })},
	{"names that are too long are cut", []string{
		"a name that no database can keep as it is is an error and no row appears",
	}, storing(cut)},
	{"names end at a zero byte", []string{
		"a name that no database can keep as it is is an error and no row appears",
	}, storing(func(s string) string { name, _, _ := strings.Cut(s, "\x00"); return name })},
	{"List gives the rows in a dictionary's order", []string{
		"List gives the rows in the byte order of their names, with all columns",
	}, listing(func(records []joblease.Record) []joblease.Record {
		slices.SortFunc(records, func(a, b joblease.Record) int {
			return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
		})
		return records
	})},
	{"List leaves out what is released", []string{
		"List gives the rows in the byte order of their names, with all columns",
	}, listing(func(records []joblease.Record) []joblease.Record {
		return slices.DeleteFunc(records, func(r joblease.Record) bool { return r.Claim.IsZero() })
	})},
	{"all tables are one", []string{
		"the same name in another table, schema or database is another lease",
	}, func(b *broken) { b.elsewhere = b.Memory }},
}

var limitFaults = []fault{
	{"the token wraps", []string{
		"a token at its maximum is an error and never wraps",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			b.edit(c.Name, func(r *row) {
				if r.token == math.MaxInt64 {
					r.token = 0
				}
			})
			return b.Memory.Acquire(ctx, c)
		}
	}},
	{"the last token looks like a refusal", []string{
		"a token at its maximum is an error and never wraps",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if r, _ := b.Get(c.Name); r.Token == math.MaxInt64 {
				return joblease.Grant{}, &joblease.HeldError{Name: c.Name, Clock: b.Now()}
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
	{"a claim with the last token cannot be sent again", []string{
		"the last token is granted, renewed, sent again and released like any other",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if r, _ := b.Get(c.Name); r.Token == math.MaxInt64 {
				return joblease.Grant{}, errBroken
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
	{"TTLs are kept in milliseconds", []string{
		"a TTL is kept to the microsecond, up to a hundred years",
	}, onGrant(func(r *row, _ row) { r.ttl = r.ttl.Truncate(time.Millisecond) })},
	{"instants end in 2038", []string{
		"a TTL is kept to the microsecond, up to a hundred years",
	}, onGrant(func(r *row, _ row) {
		if end := time.Unix(math.MaxInt32, 0); r.expiresAt.After(end) {
			r.expiresAt = end
		}
	})},
}
