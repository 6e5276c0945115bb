package storetest

import (
	"fmt"
	"time"

	"github.com/joblease/joblease"
)

func (e *env) list() []joblease.Record {
	e.Helper()
	ctx, cancel := e.bounded()
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
	return fmt.Sprintf("%q holder %q, claim %v, token %d, version %d, TTL %v, acquired %s, renewed %s, expires %s, "+
		"tick %s, done %v", r.Name, r.Holder, r.Claim, r.Token, r.Version, r.TTL,
		stamp(r.AcquiredAt), stamp(r.RenewedAt), stamp(r.ExpiresAt), stamp(r.Tick), r.TickDone)
}

// sameTTL reports whether stored is asked, but for what a database that counts
// microseconds cannot keep.
func sameTTL(stored, asked time.Duration) bool { return (stored - asked).Abs() < time.Microsecond }

// near reports whether a and b differ by at most d.
func near(a, b, d time.Duration) bool { return (a - b).Abs() <= d }

// await polls ok until it holds. It is for what nothing announces.
func (e *env) await(what string, ok func() bool) {
	e.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(e.patience); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			e.Fatalf("not within %v: %s", e.patience, what)
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

// clock returns the database's clock at the answer that r comes from.
func clock(r joblease.Record) time.Time { return r.ExpiresAt.Add(-r.Remaining) }

// fresh requires that the row of g is as a change of hands leaves it, whatever
// stood there before.
func (e *env) fresh(g joblease.Grant, c joblease.Claim) joblease.Record {
	e.Helper()
	r := e.record(c.Name)
	if r.Holder != c.Holder || r.Claim != c.ID || r.Token != g.Token || !sameTTL(r.TTL, c.TTL) {
		e.Fatalf("the row is %s\nafter a grant to holder %q, claim %v, token %d, TTL %v",
			columns(r), c.Holder, c.ID, g.Token, c.TTL)
	}
	if !r.AcquiredAt.Equal(g.AcquiredAt) || !r.ExpiresAt.Equal(g.ExpiresAt) {
		e.Fatalf("the row is %s\nthe grant says acquired %v, expires %v", columns(r), g.AcquiredAt, g.ExpiresAt)
	}
	// A store may have to extend a short lease before it can answer that it has it.
	if c.TTL >= time.Second && !near(r.RenewedAt.Sub(r.AcquiredAt), 0, slack) {
		e.Fatalf("a lease that was never renewed was acquired at %v and renewed at %v", r.AcquiredAt, r.RenewedAt)
	}
	e.lasts(r, c.TTL)
	if r.Version < 1 {
		e.Fatalf("version %d; it counts writes", r.Version)
	}
	return r
}

// lasts requires that the last write of r made it expire one ttl later.
func (e *env) lasts(r joblease.Record, ttl time.Duration) {
	e.Helper()
	if !sameTTL(r.TTL, ttl) {
		e.Fatalf("the TTL in the row is %v; asked for was %v", r.TTL, ttl)
	}
	if !near(r.ExpiresAt.Sub(r.RenewedAt), ttl, slack) {
		e.Fatalf("written at %v, expires at %v, %v later; the TTL is %v",
			r.RenewedAt, r.ExpiresAt, r.ExpiresAt.Sub(r.RenewedAt), ttl)
	}
	if r.Remaining > ttl+slack {
		e.Fatalf("%v remain of a TTL of %v", r.Remaining, ttl)
	}
}
