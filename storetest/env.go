package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/joblease/joblease"
)

const (
	// long outlives every check, however slow the machine.
	long = time.Hour
	// short is waited for in full where the database's clock cannot be stepped.
	short = joblease.MinTTL
	// patience is when a call that must return, or a thing that must come to
	// pass, is given up.
	patience = 20 * time.Second
	// promptly is the bound on calls that must not wait for anything. It is far
	// above what they take, and far below a default lock timeout.
	promptly = 3 * time.Second
	// slack is how far apart two readings of the database's clock within one
	// statement may be.
	slack = 20 * time.Millisecond
)

// env is what a check has: the test, the backend, and a first handle on it.
type env struct {
	testing.TB
	b Backend
	s joblease.Store
}

func newEnv(tb testing.TB, b Backend) *env {
	return &env{TB: tb, b: b, s: b.Open()}
}

// claim returns a new claim. Its holder's label need not be unique, so it is not.
func claim(name string, ttl time.Duration, takeover joblease.Takeover) joblease.Claim {
	return joblease.Claim{
		Name: name, ID: joblease.NewClaimID(), Holder: "replica", TTL: ttl, Takeover: takeover,
	}
}

var (
	never   = joblease.Takeover{Rule: joblease.TakeNever}
	expired = joblease.Takeover{Rule: joblease.TakeExpired}
)

// sighted returns the takeover condition of a candidate that last saw r.
func sighted(rule joblease.TakeoverRule, r joblease.Record) joblease.Takeover {
	return joblease.Takeover{Rule: rule, Claim: r.Claim, Version: r.Version}
}

// bounded returns a context in which a store that hangs fails the check instead
// of the whole test binary.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func acquire(s joblease.Store, c joblease.Claim) (joblease.Grant, error) {
	ctx, cancel := bounded()
	defer cancel()
	return s.Acquire(ctx, c)
}

func renew(s joblease.Store, g joblease.Grant) error {
	ctx, cancel := bounded()
	defer cancel()
	return s.Renew(ctx, g)
}

func release(s joblease.Store, g joblease.Grant) error {
	ctx, cancel := bounded()
	defer cancel()
	return s.Release(ctx, g)
}

// granted acquires c, which must succeed, and checks the grant against c.
func (e *env) granted(c joblease.Claim) joblease.Grant {
	e.Helper()
	g, err := acquire(e.s, c)
	if err != nil {
		e.Fatalf("acquire %q: %v; want a grant", c.Name, err)
	}
	e.grantFits(g, c)
	return g
}

// grantFits checks g as the answer to c.
func (e *env) grantFits(g joblease.Grant, c joblease.Claim) {
	e.Helper()
	if g.Name != c.Name || g.Claim != c.ID || g.Holder != c.Holder {
		e.Fatalf("the grant is %q, claim %v, holder %q; asked for was %q, claim %v, holder %q",
			g.Name, g.Claim, g.Holder, c.Name, c.ID, c.Holder)
	}
	if g.Token < 1 {
		e.Fatalf("token %d; the first of a row is 1", g.Token)
	}
	if !near(g.TTL, c.TTL, time.Microsecond) {
		e.Fatalf("the grant's TTL is %v; asked for was %v", g.TTL, c.TTL)
	}
	if g.AcquiredAt.IsZero() || g.ExpiresAt.Before(g.AcquiredAt.Add(c.TTL-slack)) {
		e.Fatalf("acquired at %v, expires at %v; the TTL is %v", g.AcquiredAt, g.ExpiresAt, c.TTL)
	}
}

// held acquires c, which must be refused because another claim holds the lease.
func (e *env) held(c joblease.Claim) *joblease.HeldError {
	e.Helper()
	g, err := acquire(e.s, c)
	if err == nil {
		e.Fatalf("acquire %q was granted, token %d; want ErrHeld", c.Name, g.Token)
	}
	return e.isHeld(err, c.Name)
}

func (e *env) isHeld(err error, name string) *joblease.HeldError {
	e.Helper()
	var h *joblease.HeldError
	if !errors.Is(err, joblease.ErrHeld) || !errors.As(err, &h) {
		e.Fatalf("acquire %q: %v; want a *joblease.HeldError", name, err)
	}
	if errors.Is(err, joblease.ErrLost) {
		e.Fatalf("%v is both ErrHeld and ErrLost", err)
	}
	if h.Name != name {
		e.Fatalf("the refusal names %q; asked for was %q", h.Name, name)
	}
	return h
}

// renewed renews g, which must succeed.
func (e *env) renewed(g joblease.Grant) {
	e.Helper()
	if err := renew(e.s, g); err != nil {
		e.Fatalf("renew %q: %v; want success", g.Name, err)
	}
}

// released releases g, which must succeed.
func (e *env) released(g joblease.Grant) {
	e.Helper()
	if err := release(e.s, g); err != nil {
		e.Fatalf("release %q: %v; want success", g.Name, err)
	}
}

// lost requires ErrLost from both a renewal and a release of g, and that
// neither changes anything in the table.
func (e *env) lost(g joblease.Grant) {
	e.Helper()
	before := e.list()
	if err := renew(e.s, g); !errors.Is(err, joblease.ErrLost) || errors.Is(err, joblease.ErrHeld) {
		e.Fatalf("renew %q: %v; want ErrLost", g.Name, err)
	}
	e.unchanged(before, "a renewal that is lost")
	if err := release(e.s, g); !errors.Is(err, joblease.ErrLost) || errors.Is(err, joblease.ErrHeld) {
		e.Fatalf("release %q: %v; want ErrLost", g.Name, err)
	}
	e.unchanged(before, "a release that is lost")
}

// unknown requires of err that it is an error but neither decision.
func (e *env) unknown(err error, what string) {
	e.Helper()
	if err == nil || errors.Is(err, joblease.ErrHeld) || errors.Is(err, joblease.ErrLost) {
		e.Fatalf("%s: %v; want an error that is neither ErrHeld nor ErrLost", what, err)
	}
}

func (e *env) list() []joblease.Record {
	e.Helper()
	ctx, cancel := bounded()
	defer cancel()
	records, err := e.s.List(ctx)
	if err != nil {
		e.Fatalf("list: %v", err)
	}
	return records
}

// record returns the row of name, which must exist.
func (e *env) record(name string) joblease.Record {
	e.Helper()
	for _, r := range e.list() {
		if r.Name == name {
			return r
		}
	}
	e.Fatalf("there is no row %q", name)
	panic("unreachable")
}

// unchanged requires that the table is what it was.
func (e *env) unchanged(before []joblease.Record, what string) {
	e.Helper()
	after := e.list()
	if len(after) != len(before) {
		e.Fatalf("%s left %d rows of %d", what, len(after), len(before))
	}
	for i := range after {
		if a, b := columns(after[i]), columns(before[i]); a != b {
			e.Fatalf("%s changed the row\nfrom %s\nto   %s", what, b, a)
		}
	}
}

// columns tells all that is stored in r, and nothing that depends on the
// instant of the answer.
func columns(r joblease.Record) string {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	return fmt.Sprintf("%q holder %q, claim %v, token %d, version %d, TTL %v, acquired %s, renewed %s, expires %s",
		r.Name, r.Holder, r.Claim, r.Token, r.Version, r.TTL,
		stamp(r.AcquiredAt), stamp(r.RenewedAt), stamp(r.ExpiresAt))
}

// near reports whether a and b differ by at most d.
func near(a, b, d time.Duration) bool { return (a - b).Abs() <= d }

// await polls ok until it holds. It is for what nothing announces.
func (e *env) await(what string, ok func() bool) {
	e.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			e.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// pass lets d pass on the database's clock, as the remaining time of the row of
// name tells it.
func (e *env) pass(name string, d time.Duration) {
	e.Helper()
	before := e.record(name)
	if e.b.Advance != nil {
		e.b.Advance(d)
	}
	e.await("the database's clock advances", func() bool {
		return e.record(name).Remaining <= before.Remaining-d
	})
}

// expire waits until the lease name has expired on the database's clock.
func (e *env) expire(name string) joblease.Record {
	e.Helper()
	r := e.record(name)
	if r.Remaining > 0 && e.b.Advance != nil {
		e.b.Advance(r.Remaining)
	}
	e.await("the lease expires", func() bool {
		r = e.record(name)
		return r.Remaining <= 0
	})
	return r
}
