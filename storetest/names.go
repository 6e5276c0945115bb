package storetest

import (
	"slices"
	"strings"

	"github.com/joblease/joblease"
)

// texts differ from each other, though some database, collation, driver or
// shell takes two of them for one or one of them for something else.
var texts = []string{
	"job", "Job", "JOB", " job", "job ", "job  ", "job\t", "job\n",
	"jób", "jo\u0301b", "straße", "strasse", "ı", "i", "İ", "ﬁ", "fi", "k", "\u212a",
	"a\u200db", "ab", "日本", "🗝", "🗝\ufe0f", "𝔘",
	"a'b", `a"b`, "a`b", `a\b`, `a\\b`, "a%b", "a_b", "a*b", "a?b", "a$1b", "a:b", "a@b", "a;--b", "a/b", "a.b", "a\r\nb",
	"NULL", "null", "0", "00", "0x0", "1e3", "1000", "true",
	strings.Repeat("x", joblease.MaxNameLen), strings.Repeat("x", joblease.MaxNameLen-1),
	strings.Repeat("x", joblease.MaxNameLen-1) + "y", strings.Repeat("é", joblease.MaxNameLen/2),
}

var nameChecks = []check{
	{"names are exact text, and each is a lease of its own", func(e *env) {
		grants := map[string]joblease.Grant{}
		for _, name := range texts {
			g := e.granted(claim(name, long, never))
			if g.Token != 1 {
				e.Fatalf("%q is new, yet its token is %d", name, g.Token)
			}
			grants[name] = g
		}
		for _, name := range texts {
			if h := e.held(claim(name, long, expired)); h.Claim != grants[name].Claim {
				e.Fatalf("%q is said to be held by the claim of another name", name)
			}
		}
		// Released one by one: each frees its own name and no other.
		for i, name := range texts {
			e.released(grants[name])
			for _, r := range e.list() {
				if want := slices.Index(texts, r.Name) > i; r.Held() != want {
					e.Fatalf("after the release of %q, %q is held: %v", name, r.Name, r.Held())
				}
			}
		}
	}},
	{"List gives the rows in the byte order of their names, with all columns", func(e *env) {
		if rows := e.list(); len(rows) != 0 {
			e.Fatalf("%d rows in an empty table", len(rows))
		}
		want := map[string]joblease.Grant{}
		for i, name := range texts {
			g := e.granted(claim(name, long, never))
			if i%2 == 0 {
				e.released(g)
				g.Claim, g.Holder = joblease.ClaimID{}, ""
			}
			want[name] = g
		}
		rows := e.list()
		sorted := slices.Sorted(slices.Values(texts))
		if len(rows) != len(sorted) {
			e.Fatalf("%d rows for %d names", len(rows), len(sorted))
		}
		for i, r := range rows {
			if r.Name != sorted[i] {
				e.Fatalf("row %d is %q; want %q", i, r.Name, sorted[i])
			}
			g := want[r.Name]
			if r.Claim != g.Claim || r.Holder != g.Holder || r.Token != g.Token || !sameTTL(r.TTL, g.TTL) {
				e.Fatalf("%s\nafter a grant to holder %q, claim %v, token %d, TTL %v",
					columns(r), g.Holder, g.Claim, g.Token, g.TTL)
			}
			if held := !g.Claim.IsZero(); r.Held() != held {
				e.Fatalf("%s: held is %v, %v remaining; want %v", columns(r), r.Held(), r.Remaining, held)
			}
			if r.AcquiredAt.IsZero() || r.RenewedAt.IsZero() || r.ExpiresAt.IsZero() {
				e.Fatalf("%s: an instant is missing", columns(r))
			}
		}
	}},
	{"a name that no database can keep as it is is an error and no row appears", func(e *env) {
		for _, name := range []string{"", strings.Repeat("x", joblease.MaxNameLen+1), "a\x00b", "a\xffb"} {
			_, err := e.acquire(e.s, claim(name, long, never))
			e.unknown(err, "acquire of a name that cannot be stored")
			if rows := e.list(); len(rows) != 0 {
				e.Fatalf("the name %q was stored as %q", name, rows[0].Name)
			}
		}
	}},
	{"a holder's label is kept as exact text", func(e *env) {
		for _, label := range texts {
			c := claim("job", long, never)
			c.Holder = label
			g := e.granted(c)
			e.fresh(g, c)
			if h := e.held(claim("job", long, never)); h.Holder != label {
				e.Fatalf("the refusal names holder %q; it is %q", h.Holder, label)
			}
			e.released(g)
		}
	}},
	{"the same name in another table, schema or database is another lease", func(e *env) {
		e.needs("Elsewhere", e.b.Elsewhere != nil)
		stores := append([]joblease.Store{e.s}, e.b.Elsewhere()...)
		var grants []joblease.Grant
		for i, s := range stores {
			g, err := e.acquire(s, claim("job", long, never))
			if err != nil || g.Token != 1 {
				e.Fatalf("acquire in table %d: token %d, %v; want token 1", i, g.Token, err)
			}
			grants = append(grants, g)
		}
		for i, s := range stores {
			if err := e.release(s, grants[i]); err != nil {
				e.Fatalf("release in table %d: %v", i, err)
			}
			for j := i + 1; j < len(stores); j++ {
				if err := e.renew(stores[j], grants[j]); err != nil {
					e.Fatalf("renew in table %d after a release in table %d: %v", j, i, err)
				}
			}
		}
	}},
}
