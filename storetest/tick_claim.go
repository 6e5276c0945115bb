package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/joblease/joblease"
)

// tickChecks are about which tick is granted to whom.
var tickChecks = []check{
	{"a tick is granted once, and neither it nor an older one ever again", func(e *env) {
		stores := e.handles(2)
		t := e.past()
		for _, state := range tickStates {
			state.prepare(e, tickClaim(state.name, at(t)))
			for _, late := range []time.Duration{0, time.Microsecond, time.Hour, 24 * 365 * time.Hour} {
				for _, s := range stores {
					r := e.tickRefusedBy(s, tickClaim(state.name, at(t.Add(-late))))
					if !r.Due() {
						e.Fatalf("%s: the tick %v is said not to have come at %v", state.name, r.At, r.Clock)
					}
				}
			}
		}
	}},
	{"a later tick is granted when the lease is free, by a microsecond or a day", func(e *env) {
		for _, later := range []time.Duration{time.Microsecond, time.Minute, 24 * time.Hour} {
			t := e.past().Add(-later)
			for _, state := range tickStates[1:4] {
				name := fmt.Sprint(state.name, later)
				state.prepare(e, tickClaim(name, at(t)))
				before := e.record(name)
				c := tickClaim(name, at(t.Add(later)))
				g := e.granted(c)
				if g.Token != before.Token+1 {
					e.Fatalf("token %d after %d; a change of hands raises it by one", g.Token, before.Token)
				}
				e.fresh(g, c)
				e.ticked(name, t.Add(later), false)
			}
		}
	}},
	{"a tick that has not come is refused and no row appears", func(e *env) {
		t := e.past()
		e.released(e.granted(claim("free", long, never)))
		e.granted(claim("live", long, never))
		e.released(e.granted(tickClaim("ticked", at(t))))
		for _, name := range []string{"absent", "free", "live", "ticked"} {
			for _, next := range []joblease.Tick{at(t.Add(3 * time.Hour)), again(t.Add(3 * time.Hour))} {
				if r := e.tickRefused(tickClaim(name, next)); r.Due() {
					e.Fatalf("%s: the tick %v is said to have come at %v", name, r.At, r.Clock)
				}
			}
		}
	}},
	{"a tick is granted from the instant at which it comes", func(e *env) {
		e.granted(claim("job", short, never))
		e.expire("job")
		for _, name := range []string{"absent", "job"} {
			t := e.now().Add(4 * short)
			if e.b.Advance != nil {
				e.b.Advance(3*short + short/2)
			}
			e.await("the tick comes", func() bool {
				g, err := e.acquire(e.s, tickClaim(name, at(t)))
				if err != nil {
					e.isTickError(err, name) // a refusal must not say that it has come
					return false
				}
				if g.AcquiredAt.Before(micro(t)) {
					e.Fatalf("the tick %v was granted at %v", t, g.AcquiredAt)
				}
				return true
			})
			e.ticked(name, micro(t), false)
		}
	}},
	{"a tick that cannot be claimed is refused as such, whoever holds the lease", func(e *env) {
		t := e.past()
		e.granted(tickClaim("job", at(t)))
		for _, takeover := range append(everyRule(), sighted(joblease.TakeSighted, e.record("job"))) {
			for _, refused := range []joblease.Tick{at(t), at(t.Add(-time.Minute)), at(t.Add(3 * time.Hour)), again(t.Add(-time.Minute))} {
				c := tickClaim("job", refused)
				c.Takeover = takeover
				e.tickRefused(c)
			}
			if takeover.Rule == joblease.TakeSighted && takeover.Version < 1<<40 {
				break // the sighting fits, so what follows would be granted
			}
			for _, free := range []joblease.Tick{at(t.Add(time.Minute)), again(t.Add(time.Minute)), again(t)} {
				c := tickClaim("job", free)
				c.Takeover = takeover
				before, r := e.list(), e.record("job")
				e.tells(e.held(c), r, e.record("job"))
				e.unchanged(before, "a refused acquire")
			}
		}
	}},
	{"a tick of a locked row is refused at once, as what it would be without the lock", func(e *env) {
		e.needs("Lock of one row", e.b.Lock != nil && !e.b.LocksTable)
		t := e.past()
		for _, state := range tickStates {
			state.prepare(e, tickClaim(state.name, at(t)))
			unlock := e.b.Lock(state.name)
			for _, refused := range []joblease.Tick{at(t), at(t.Add(-time.Minute)), at(t.Add(3 * time.Hour))} {
				sent := time.Now()
				e.tickRefused(tickClaim(state.name, refused))
				if took := time.Since(sent); took > e.promptly {
					e.Fatalf("%s: the refusal took %v; want it at once", state.name, took)
				}
			}
			e.heldAtOnce(tickClaim(state.name, at(t.Add(time.Minute))))
			unlock()
		}
	}},
	{"a claim without a tick leaves the tick alone", func(e *env) {
		t := e.past()
		for _, finished := range []bool{false, true} {
			name := fmt.Sprint("finished ", finished)
			g := e.granted(tickClaim(name, at(t)))
			g.Finished = finished
			e.released(g)
			other := e.granted(claim(name, long, never))
			e.ticked(name, t, finished)
			e.renewed(other)
			e.ticked(name, t, finished)
			other.Finished = true
			e.released(other)
			e.ticked(name, t, finished)
		}
		e.released(e.granted(claim("never ticked", long, never)))
		e.ticked("never ticked", time.Time{}, true)
	}},
	{"a claim of a tick that is sent again gets its own grant and tick back", func(e *env) {
		t := e.past()
		for _, tick := range []joblease.Tick{at(t), again(t), {Slot: 10 * time.Millisecond}} {
			name := fmt.Sprintf("%+v", tick)
			c := tickClaim(name, tick)
			g := e.granted(c)
			// The tick is the claim's, also when the clock shows the next slot.
			e.pass(name, 50*time.Millisecond)
			for range 2 {
				got := e.granted(c)
				if got.Token != g.Token || !got.Tick.Equal(g.Tick) {
					e.Fatalf("token %d, tick %v; the first grant had %d, %v", got.Token, got.Tick, g.Token, g.Tick)
				}
				e.ticked(name, g.Tick, false)
			}
			e.renewed(g)
			e.ticked(name, g.Tick, false)
		}
	}},
	{"a claim that is sent again after its release or a takeover does not get its tick again", func(e *env) {
		t := e.past()
		released, taken := tickClaim("released", at(t)), tickClaim("taken", at(t))
		e.released(e.granted(released))
		e.tickRefused(released)
		taken.TTL = short
		e.granted(taken)
		e.expire("taken")
		e.granted(tickClaim("taken", again(t)))
		e.tickRefused(taken)
	}},
	{"of many candidates for one tick exactly one is granted, round after round", func(e *env) {
		stores := e.handles(4)
		t := e.past()
		for round := range 20 {
			tick := at(t.Add(time.Duration(round) * time.Second))
			granted := 0
			for _, o := range together(32, func(i int) outcome {
				s := stores[i%len(stores)]
				g, err := e.acquire(s, tickClaim("job", tick))
				if err == nil {
					// Released at once, so that only the tick keeps the others out.
					g.Finished = true
					return outcome{grant: g, err: e.release(s, g)}
				}
				return outcome{err: err}
			}) {
				switch {
				case !o.grant.Claim.IsZero() && o.err == nil:
					granted++
				case errors.Is(o.err, joblease.ErrHeld):
				default:
					e.isTickError(o.err, "job")
				}
			}
			if r := e.record("job"); granted != 1 || !r.Tick.Equal(tick.At) || r.Token != int64(round+1) {
				e.Fatalf("%d grants of the tick %v, and the row is %s", granted, tick.At, columns(r))
			}
		}
	}},
}
