package storetest

import (
	"errors"
	"time"

	"github.com/joblease/joblease"
)

// tickClaim returns a new claim of a tick that takes what has expired.
func tickClaim(name string, t joblease.Tick) joblease.Claim {
	c := claim(name, long, expired)
	c.Tick = t
	return c
}

func at(t time.Time) joblease.Tick { return joblease.Tick{At: t} }

func again(t time.Time) joblease.Tick { return joblease.Tick{At: t, Again: true} }

// now returns the database's clock, as the row of a lease that nothing else
// uses tells it.
func (e *env) now() time.Time {
	e.Helper()
	const name = "clock"
	for _, r := range e.list() {
		if r.Name == name {
			return clock(r)
		}
	}
	e.granted(claim(name, long, never))
	return clock(e.record(name))
}

// past returns an instant an hour ago, with microseconds of its own.
func (e *env) past() time.Time {
	e.Helper()
	return e.now().Truncate(time.Second).Add(-time.Hour + 123457*time.Microsecond).UTC()
}

// tickRefused acquires c, whose tick must be refused. It checks that the
// refusal is of that tick and tells the row as it is, and that nothing was
// written.
func (e *env) tickRefused(c joblease.Claim) *joblease.TickError {
	e.Helper()
	return e.tickRefusedBy(e.s, c)
}

func (e *env) tickRefusedBy(s joblease.Store, c joblease.Claim) *joblease.TickError {
	e.Helper()
	earliest, before := e.now(), e.list()
	g, err := e.acquire(s, c)
	if err == nil {
		e.Fatalf("the tick %+v of %q was granted, token %d, as that of %v; want a *joblease.TickError", c.Tick, c.Name, g.Token, g.Tick)
	}
	r := e.isTickError(err, c.Name)
	e.unchanged(before, "a tick that was refused")
	last := joblease.Record{TickDone: true}
	for _, row := range before {
		if row.Name == c.Name {
			last = row
		}
	}
	if !r.Last.Equal(last.Tick) || r.Done != last.TickDone {
		e.Fatalf("the refusal tells the last tick as %v, done %v, of the row %s", r.Last, r.Done, columns(last))
	}
	if c.Tick.Slot == 0 && !r.At.Equal(micro(c.Tick.At)) {
		e.Fatalf("the refusal is of the tick %v; asked for was %v", r.At, c.Tick.At)
	}
	if latest := e.now(); r.Clock.Before(earliest.Add(-slack)) || r.Clock.After(latest.Add(slack)) {
		e.Fatalf("the refusal tells the clock as %v, between answers of %v and %v", r.Clock, earliest, latest)
	}
	return r
}

// isTickError requires that err refuses the tick and nothing else.
func (e *env) isTickError(err error, name string) *joblease.TickError {
	e.Helper()
	var r *joblease.TickError
	if !errors.As(err, &r) {
		e.Fatalf("acquire %q: %v; want a *joblease.TickError", name, err)
	}
	e.unknown(err, "the refusal of a tick")
	if r.Name != name {
		e.Fatalf("the refusal names %q; asked for was %q", r.Name, name)
	}
	if r.Last.Before(r.At) && !r.At.After(r.Clock) {
		e.Fatalf("refused is the tick %v, which is later than the last one, %v, and has come at %v", r.At, r.Last, r.Clock)
	}
	return r
}

// ticked requires that the row of name has the tick.
func (e *env) ticked(name string, tick time.Time, done bool) {
	e.Helper()
	if r := e.record(name); !r.Tick.Equal(tick) || r.TickDone != done || !tick.IsZero() && r.Tick.Location() != time.UTC {
		e.Fatalf("the row is %s\nwant tick %v (in UTC), done %v", columns(r), tick, done)
	}
}

// tickStates are what can become of a lease with a tick. Each prepares a row
// whose tick is the one given.
var tickStates = []struct {
	name    string
	prepare func(e *env, c joblease.Claim)
}{
	{"live", func(e *env, c joblease.Claim) { e.granted(c) }},
	{"released", func(e *env, c joblease.Claim) { e.released(e.granted(c)) }},
	{"finished", func(e *env, c joblease.Claim) {
		g := e.granted(c)
		g.Finished = true
		e.released(g)
	}},
	{"expired", func(e *env, c joblease.Claim) {
		c.TTL = short
		e.granted(c)
		e.expire(c.Name)
	}},
	{"held without a tick since", func(e *env, c joblease.Claim) {
		e.released(e.granted(c))
		e.granted(claim(c.Name, long, never))
	}},
}
