package storetest

import (
	"time"

	"github.com/joblease/joblease"
)

// states are the rows that any candidate takes: absent, released, expired. Each
// prepares one under name and returns the token that the next grant has.
var states = []struct {
	name    string
	prepare func(e *env, name string) (token int64)
}{
	{"absent", func(*env, string) int64 { return 1 }},
	{"released", func(e *env, name string) int64 {
		g := e.granted(claim(name, long, never))
		e.released(g)
		return g.Token + 1
	}},
	{"expired", func(e *env, name string) int64 {
		g := e.granted(claim(name, short, never))
		e.expire(name)
		return g.Token + 1
	}},
}

var acquireChecks = []check{
	{"a free name is granted with token 1 and each change of hands raises it by one", func(e *env) {
		for token := int64(1); token <= 3; token++ {
			g := e.granted(claim("job", long, never))
			if g.Token != token {
				e.Fatalf("token %d; want %d", g.Token, token)
			}
			e.released(g)
		}
		if rows := e.list(); len(rows) != 1 {
			e.Fatalf("%d rows; one lease is one row", len(rows))
		}
	}},
	{"absent, released and expired rows are taken alike, all columns set", func(e *env) {
		for _, state := range states {
			token := state.prepare(e, state.name)
			var before joblease.Record
			if token > 1 {
				before = e.record(state.name)
			}
			c := claim(state.name, long, expired)
			c.Holder = "successor"
			g := e.granted(c)
			if g.Token != token {
				e.Fatalf("%s: token %d; want %d", state.name, g.Token, token)
			}
			r := e.fresh(g, c)
			if !r.Held() {
				e.Fatalf("%s: %s is not held after a grant", state.name, columns(r))
			}
			if token > 1 && r.Version != before.Version+1 {
				e.Fatalf("%s: version %d after %d; each write raises it by one", state.name, r.Version, before.Version)
			}
			if r.AcquiredAt.Before(before.AcquiredAt) {
				e.Fatalf("%s: acquired at %v, after a term that began at %v", state.name, r.AcquiredAt, before.AcquiredAt)
			}
		}
	}},
	{"who takes an absent, a released or an expired row keeps it for a full TTL", func(e *env) {
		const ttl = 6 * short
		for _, state := range states {
			state.prepare(e, state.name)
			g := e.granted(claim(state.name, ttl, expired))
			e.await("a third candidate gets the lease", func() bool {
				third, err := e.acquire(e.s, claim(state.name, long, expired))
				if err != nil {
					h := e.isHeld(err, state.name)
					if e.b.Advance != nil {
						e.b.Advance(h.Remaining/4 + time.Millisecond)
					}
					return false
				}
				if lasted := third.AcquiredAt.Sub(g.AcquiredAt); lasted < ttl-slack {
					e.Fatalf("%s: the next candidate got it after %v of a TTL of %v", state.name, lasted, ttl)
				}
				return true
			})
		}
	}},
	{"a candidate's shorter TTL does not shorten the holder's lease", func(e *env) {
		e.granted(claim("job", long, never))
		before := e.list()
		e.held(claim("job", short, expired))
		e.unchanged(before, "a candidate with a shorter TTL")
		e.pass("job", 2*short)
		e.held(claim("job", short, expired))
	}},
	{"two claims of the same holder label exclude each other", func(e *env) {
		first, second := claim("job", long, never), claim("job", long, expired)
		second.Holder = first.Holder
		g := e.granted(first)
		e.held(second)
		forged := g
		forged.Claim = second.ID
		e.lost(forged)
		e.renewed(g)
	}},
	{"a claim that is sent again gets its own grant back, extended", func(e *env) {
		for i, takeover := range everyRule() {
			name := takeover.Rule.String()
			c := claim(name, long, never)
			g := e.granted(c)
			before := e.record(name)
			e.pass(name, 10*time.Millisecond)
			c.Takeover = takeover
			again := e.granted(c)
			if again.Token != g.Token || !again.AcquiredAt.Equal(g.AcquiredAt) {
				e.Fatalf("token %d, acquired at %v; the first grant had %d, %v",
					again.Token, again.AcquiredAt, g.Token, g.AcquiredAt)
			}
			r := e.record(name)
			if r.Claim != c.ID || r.Token != g.Token || !r.AcquiredAt.Equal(g.AcquiredAt) || r.Version != before.Version+1 {
				e.Fatalf("the row went\nfrom %s\nto   %s", columns(before), columns(r))
			}
			if !r.ExpiresAt.After(before.ExpiresAt) || !r.ExpiresAt.Equal(again.ExpiresAt) {
				e.Fatalf("it expired at %v, now at %v, by the grant at %v", before.ExpiresAt, r.ExpiresAt, again.ExpiresAt)
			}
			// No hidden count: one release frees what was acquired twice.
			e.released(again)
			e.granted(claim(name, long, everyRule()[i]))
			e.lost(again)
		}
	}},
	{"a claim that is sent again with another TTL has that TTL from then on", func(e *env) {
		c := claim("job", short, never)
		e.granted(c)
		c.TTL = long
		e.granted(c)
		e.lasts(e.record("job"), long)
	}},
	{"a claim that is sent again after its expiry keeps its token if nobody took over", func(e *env) {
		c := claim("job", short, never)
		g := e.granted(c)
		e.expire("job")
		c.TTL = long
		if again := e.granted(c); again.Token != g.Token {
			e.Fatalf("token %d; nobody else had it since %d", again.Token, g.Token)
		}
		e.held(claim("job", long, expired))
	}},
	{"a claim that is sent again after a takeover is refused", func(e *env) {
		c := claim("job", short, never)
		e.granted(c)
		e.expire("job")
		e.granted(claim("job", long, expired))
		before := e.list()
		e.held(c)
		e.unchanged(before, "a refused acquire")
	}},
	{"a claim that is sent again after its release is a new change of hands", func(e *env) {
		c := claim("job", long, never)
		g := e.granted(c)
		e.released(g)
		again := e.granted(c)
		if again.Token != g.Token+1 {
			e.Fatalf("token %d; after a release %d comes next", again.Token, g.Token+1)
		}
		e.fresh(again, c)
	}},
}
