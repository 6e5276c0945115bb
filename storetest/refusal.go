package storetest

import (
	"time"

	"github.com/joblease/joblease"
)

// tells requires that the refusal h says what is in the row: r is the answer
// of a List before it and after one after it.
func (e *env) tells(h *joblease.HeldError, r, after joblease.Record) {
	e.Helper()
	if h.Holder != r.Holder || h.Token != r.Token || h.Claim != r.Claim || h.Version != r.Version || h.TTL != r.TTL {
		e.Fatalf("the refusal tells holder %q, token %d, claim %v, version %d, TTL %v\nof the row %s",
			h.Holder, h.Token, h.Claim, h.Version, h.TTL, columns(r))
	}
	if h.Clock.IsZero() {
		e.Fatalf("the refusal does not tell the database's clock")
	}
	if h.Clock.Before(clock(r).Add(-slack)) || h.Clock.After(clock(after).Add(slack)) {
		e.Fatalf("the refusal tells the clock as %v, between answers of %v and %v", h.Clock, clock(r), clock(after))
	}
	if !r.Claim.IsZero() && !near(h.Clock.Add(h.Remaining).Sub(r.ExpiresAt), 0, slack) {
		e.Fatalf("the refusal tells %v remaining at %v; the row expires at %v", h.Remaining, h.Clock, r.ExpiresAt)
	}
}

var refusalChecks = []check{
	{"a refusal tells holder, token, claim, version, TTL, remaining time and clock", func(e *env) {
		g := e.granted(claim("job", long+12345*time.Microsecond, never))
		for range 2 {
			r := e.record("job")
			h := e.held(claim("job", short, expired))
			e.tells(h, r, e.record("job"))
			if h.Remaining <= 0 || h.Remaining > r.Remaining+slack {
				e.Fatalf("%v remaining, after %v", h.Remaining, r.Remaining)
			}
			e.renewed(g)
		}
	}},
	{"a refusal tells of an expired lease that nothing remains", func(e *env) {
		e.granted(claim("job", short, never))
		r := e.expire("job")
		h := e.held(claim("job", short, never))
		e.tells(h, r, e.record("job"))
		if h.Remaining > 0 {
			e.Fatalf("%v remaining of a lease that has expired", h.Remaining)
		}
	}},
	{"from one refusal to the next the clock goes on by what the remaining time loses", func(e *env) {
		e.granted(claim("job", long, never))
		first := e.held(claim("job", short, never))
		e.pass("job", 2*short)
		second := e.held(claim("job", short, never))
		went, lost := second.Clock.Sub(first.Clock), first.Remaining-second.Remaining
		if went < 2*short-slack || !near(went, lost, slack) {
			e.Fatalf("over %v or more the clock went on by %v and the remaining time shrank by %v", 2*short, went, lost)
		}
	}},
	{"a hundred refusals write nothing", func(e *env) {
		e.granted(claim("job", long, never))
		before := e.list()
		for i := range 100 {
			e.held(claim("job", short, everyRule()[i%4]))
		}
		e.unchanged(before, "a hundred refusals")
	}},
}
