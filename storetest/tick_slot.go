package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/joblease/joblease"
)

// slotLen is long enough for a few dozen attempts in each quarter, and no whole
// part of a second.
const slotLen = 420 * time.Millisecond

// slotAt returns when the slot began in which t is, and whether the next begins
// within a quarter of its length.
func slotAt(t time.Time, slot time.Duration) (start time.Time, late bool) {
	since := time.Duration(t.UnixMicro()) * time.Microsecond % slot
	return time.UnixMicro(t.UnixMicro()).Add(-since), 4*(slot-since) <= slot
}

// slotGrantFits checks a grant of a slot after that of last. The clock by which
// it was chosen is a little before the instant of the write.
func (e *env) slotGrantFits(g joblease.Grant, slot time.Duration, last time.Time) (early bool) {
	e.Helper()
	for _, clock := range []time.Time{g.AcquiredAt, g.AcquiredAt.Add(-slack)} {
		start, late := slotAt(clock, slot)
		switch {
		case !g.Tick.After(last):
		case g.Tick.Equal(start):
			return false
		case g.Tick.Equal(start.Add(slot)) && last.Equal(start) && late:
			return true
		}
	}
	e.Fatalf("after %v the slot of %v that begins at %v was granted at %v", last, slot, g.Tick, g.AcquiredAt)
	return false
}

// slotRefusalFits checks the refusal of a slot after that of last.
func (e *env) slotRefusalFits(r *joblease.TickError, slot time.Duration, last time.Time) {
	e.Helper()
	start, late := slotAt(r.Clock, slot)
	want := start
	if late {
		want = start.Add(slot)
	}
	if !r.At.Equal(want) || last.Before(want) || !r.Last.Equal(last) {
		e.Fatalf("at %v the slot of %v that begins at %v was refused, after %v; the last one granted began at %v",
			r.Clock, slot, r.At, r.Last, last)
	}
}

var slotChecks = []check{
	{"a slot is granted once, and the next when it begins or in the last quarter before", func(e *env) {
		stores := e.handles(2)
		var last time.Time
		var grants, earlies, refusals int
		i := 0
		e.await("slots are granted, early and in time, and refused", func() bool {
			if e.b.Advance != nil {
				e.b.Advance(slotLen / 32)
			}
			s := stores[i%len(stores)]
			i++
			g, err := e.acquire(s, tickClaim("job", joblease.Tick{Slot: slotLen}))
			if err != nil {
				e.slotRefusalFits(e.isTickError(err, "job"), slotLen, last)
				refusals++
				return grants > earlies && earlies > 2
			}
			grants++
			if e.slotGrantFits(g, slotLen, last) {
				earlies++
			}
			last = g.Tick
			e.ticked("job", last, false)
			// Finished or not, released or not, the slot was granted.
			g.Finished = grants%2 == 0
			e.released(g)
			return false
		})
		if refusals < 3 {
			e.Fatalf("%d grants, %d early, %d refusals", grants, earlies, refusals)
		}
	}},
	{"a slot that is not claimed in time is not claimed early either", func(e *env) {
		tries := 0
		e.await("a claim falls in the last quarter of a slot", func() bool {
			if e.b.Advance != nil {
				e.b.Advance(slotLen / 32)
			}
			if _, late := slotAt(e.now(), slotLen); !late {
				return false
			}
			// Who comes only now gets the slot that the clock is in.
			tries++
			g := e.granted(tickClaim(fmt.Sprint("job ", tries), joblease.Tick{Slot: slotLen}))
			if e.slotGrantFits(g, slotLen, time.Time{}) {
				e.Fatalf("the slot that begins at %v was granted early, before the one before it", g.Tick)
			}
			_, late := slotAt(g.AcquiredAt, slotLen)
			return late
		})
	}},
	{"a slot begins a whole number of lengths after 1970 on the database's clock", func(e *env) {
		if e.b.Advance != nil {
			e.b.Advance(5*time.Hour + 17*time.Minute) // so that it is not the machine's
		}
		for _, slot := range []time.Duration{
			time.Microsecond, time.Millisecond, 7 * time.Second, 999_999 * time.Microsecond, time.Minute, 17 * time.Minute,
			time.Hour, 24*time.Hour + time.Microsecond, 7 * 24 * time.Hour, 100 * 365 * 24 * time.Hour,
		} {
			var last time.Time
			for range 2 {
				before := e.now()
				g, err := e.acquire(e.s, tickClaim(slot.String(), joblease.Tick{Slot: slot}))
				if err != nil {
					e.slotRefusalFits(e.isTickError(err, slot.String()), slot, last)
					continue
				}
				if slot > 50*slack {
					e.slotGrantFits(g, slot, last)
				}
				if ahead := g.Tick.Sub(before); ahead <= -slot-slack || g.Tick.After(e.now().Add(slot/4+slack)) {
					e.Fatalf("a slot of %v that begins at %v was granted when the clock showed %v", slot, g.Tick, before)
				}
				if g.Tick.UnixMicro()%slot.Microseconds() != 0 {
					e.Fatalf("a slot of %v was granted that begins at %v", slot, g.Tick)
				}
				last = g.Tick
				e.released(g)
			}
		}
	}},
	{"a slot is refused, held, interrupted and granted again like any tick", func(e *env) {
		// The clock stands in the middle of the second slot of this length.
		slot := time.Duration(e.now().UnixMicro()/3*2) * time.Microsecond
		start := time.UnixMicro(slot.Microseconds())
		once, again := joblease.Tick{Slot: slot}, joblease.Tick{Slot: slot, Again: true}
		for range 2 {
			g := e.granted(tickClaim("job", again))
			if !g.Tick.Equal(start) {
				e.Fatalf("the slot that begins at %v was granted as that of %v", start, g.Tick)
			}
			if r := e.tickRefused(tickClaim("job", once)); !r.At.Equal(start) {
				e.Fatalf("refused was the slot that begins at %v; it is the one of %v", r.At, start)
			}
			e.held(tickClaim("job", again))
			e.held(tickClaim("job", joblease.Tick{Slot: time.Minute}))
			e.released(g)
			e.tickRefused(tickClaim("job", once))
		}
		g := e.granted(tickClaim("job", again))
		g.Finished = true
		e.released(g)
		e.tickRefused(tickClaim("job", again))
	}},
	{"of many candidates for a slot exactly one is granted, slot after slot", func(e *env) {
		stores := e.handles(4)
		granted := map[time.Time]bool{}
		for range 10 {
			for _, o := range together(32, func(i int) outcome {
				s := stores[i%len(stores)]
				g, err := e.acquire(s, tickClaim("job", joblease.Tick{Slot: slotLen}))
				if err == nil {
					err = e.release(s, g)
				}
				return outcome{g, err}
			}) {
				switch {
				case o.err == nil && granted[o.grant.Tick]:
					e.Fatalf("the slot that begins at %v was granted twice", o.grant.Tick)
				case o.err == nil:
					granted[o.grant.Tick] = true
				case !errors.Is(o.err, joblease.ErrHeld):
					e.isTickError(o.err, "job")
				}
			}
			e.pass("job", slotLen/3)
		}
		if len(granted) < 3 {
			e.Fatalf("%d slots were granted in more than 3 of their lengths", len(granted))
		}
	}},
}
