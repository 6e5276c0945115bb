package storetest

import (
	"time"

	"github.com/joblease/joblease"
)

// heldAtOnce requires that c is refused without waiting.
func (e *env) heldAtOnce(c joblease.Claim) *joblease.HeldError {
	e.Helper()
	sent := time.Now()
	h := e.held(c)
	if took := time.Since(sent); took > e.promptly {
		e.Fatalf("the refusal of %q took %v; want it at once", c.Name, took)
	}
	return h
}

// whileLocked runs write while another session locks the row of name, and
// unlocks it when the lease has expired. It returns what write returned and the
// database's clock just before the unlock. A write that gives up waiting with an
// error is within the contract; one that succeeds before the unlock is not.
func (e *env) whileLocked(name string, write func() error) (joblease.Record, error) {
	e.Helper()
	unlock := e.b.Lock(name)
	done := make(chan error, 1)
	go func() { done <- write() }()
	var err error
	select {
	case err = <-done:
		e.unknown(err, "a write to a row that another session locks")
		done <- err
	case <-time.After(short): // long enough for the write to reach the lock
	}
	e.expire(name)
	e.pass(name, 4*short)
	r := e.record(name)
	unlock()
	return r, <-done
}

var lockChecks = []check{
	{"a locked row is refused at once, whatever stands in it, and the refusal tells it", func(e *env) {
		e.needs("Lock of one row", e.b.Lock != nil && !e.b.LocksTable)
		own := claim("own", long, never)
		e.granted(own)
		for _, name := range []string{"live", "sighted"} {
			e.granted(claim(name, long, never))
		}
		e.released(e.granted(claim("released", long, never)))
		for _, name := range []string{"expired", "sighted expired"} {
			e.granted(claim(name, short, never))
			e.expire(name)
		}
		for _, c := range []joblease.Claim{
			own,
			claim("live", long, expired),
			claim("sighted", long, sighted(joblease.TakeSighted, e.record("sighted"))),
			claim("released", long, never),
			claim("expired", long, expired),
			claim("sighted expired", long, sighted(joblease.TakeSightedExpired, e.record("sighted expired"))),
		} {
			unlock := e.b.Lock(c.Name)
			before, r := e.list(), e.record(c.Name)
			h := e.heldAtOnce(c)
			e.tells(h, r, e.record(c.Name))
			if live := !r.Claim.IsZero() && r.Remaining > 0; (h.Remaining > 0) != live {
				e.Fatalf("%q: the refusal tells %v remaining; the row is %s", c.Name, h.Remaining, columns(r))
			}
			unlock()
			e.unchanged(before, "an acquire of a locked row")
			if c.Name == "live" {
				e.held(c)
			} else {
				e.granted(c)
			}
		}
	}},
	{"a row that is locked for longer than the TTL is granted for a full TTL afterwards", func(e *env) {
		e.needs("Lock of one row", e.b.Lock != nil && !e.b.LocksTable)
		const ttl = 4 * short
		for _, state := range states[1:] {
			state.prepare(e, state.name)
			unlock := e.b.Lock(state.name)
			c := claim(state.name, ttl, expired)
			e.heldAtOnce(c)
			e.pass(state.name, 2*ttl)
			e.heldAtOnce(c)
			unlocked := clock(e.record(state.name))
			unlock()
			g := e.granted(c)
			if left := g.ExpiresAt.Sub(unlocked); left < ttl-slack {
				e.Fatalf("%s: granted until %v after the unlock; the TTL is %v", state.name, left, ttl)
			}
			e.fresh(g, c)
		}
	}},
	{"a renewal that waited for a lock counts the TTL from its write", func(e *env) {
		e.needs("Lock", e.b.Lock != nil)
		g := e.granted(claim("job", short, never))
		g.TTL = long
		other := e.b.Open()
		locked, err := e.whileLocked("job", func() error { return e.renew(other, g) })
		if err != nil {
			e.unknown(err, "a renewal that waited")
			e.renewed(g)
		}
		r := e.record("job")
		if left := r.ExpiresAt.Sub(clock(locked)); left < long-slack {
			e.Fatalf("it expires %v after the unlock; the TTL is %v", left, long)
		}
		if r.Claim != g.Claim || r.Token != g.Token {
			e.Fatalf("the row is %s; want claim %v, token %d", columns(r), g.Claim, g.Token)
		}
	}},
	{"a release that waited for a lock frees the lease", func(e *env) {
		e.needs("Lock", e.b.Lock != nil)
		g := e.granted(claim("job", short, never))
		other := e.b.Open()
		if _, err := e.whileLocked("job", func() error { return e.release(other, g) }); err != nil {
			e.unknown(err, "a release that waited")
			e.released(g)
		}
		if next := e.granted(claim("job", long, never)); next.Token != g.Token+1 {
			e.Fatalf("token %d after %d", next.Token, g.Token)
		}
	}},
	{"a locked row does not keep List waiting", func(e *env) {
		e.needs("Lock", e.b.Lock != nil)
		e.granted(claim("job", long, never))
		unlock := e.b.Lock("job")
		defer unlock()
		sent := time.Now()
		e.record("job")
		if took := time.Since(sent); took > e.promptly {
			e.Fatalf("List took %v", took)
		}
	}},
	{"a locked row does not keep other leases waiting", func(e *env) {
		e.needs("Lock of one row", e.b.Lock != nil && !e.b.LocksTable)
		g := e.granted(claim("other", long, never))
		e.granted(claim("job", long, never))
		unlock := e.b.Lock("job")
		defer unlock()
		sent := time.Now()
		e.renewed(g)
		e.released(g)
		e.granted(claim("other", long, never))
		e.granted(claim("new", long, never))
		if took := time.Since(sent); took > e.promptly {
			e.Fatalf("four calls for other leases took %v", took)
		}
	}},
}
