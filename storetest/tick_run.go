package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/joblease/joblease"
)

// runChecks are about what becomes of the run of a tick.
var runChecks = []check{
	{"a run is finished only when its release says so", func(e *env) {
		t := e.past()
		for i, finished := range []bool{false, true, false, true, true} {
			tick := t.Add(time.Duration(i) * time.Minute)
			g := e.granted(tickClaim("job", at(tick)))
			e.ticked("job", tick, false)
			e.renewed(g)
			e.ticked("job", tick, false)
			g.Finished = finished
			e.released(g)
			e.ticked("job", tick, finished)
		}
	}},
	{"a release that is lost finishes nothing", func(e *env) {
		t := e.past()
		c := tickClaim("job", at(t))
		c.TTL = short
		g := e.granted(c)
		e.expire("job")
		e.granted(tickClaim("job", again(t)))
		g.Finished = true
		e.lost(g)
		e.ticked("job", t, false)
	}},
	{"a run that was interrupted is granted again, to claims that ask for that only", func(e *env) {
		t := e.past()
		for _, state := range tickStates[:4] {
			if state.name == "finished" || state.name == "live" {
				continue
			}
			state.prepare(e, tickClaim(state.name, at(t)))
			before := e.record(state.name)
			e.tickRefused(tickClaim(state.name, at(t)))
			for range 3 { // each may be interrupted as well
				c := tickClaim(state.name, again(t))
				g := e.granted(c)
				e.fresh(g, c)
				e.ticked(state.name, t, false)
				if before.Token++; g.Token != before.Token {
					e.Fatalf("%s: token %d; want %d", state.name, g.Token, before.Token)
				}
				e.released(g)
			}
		}
	}},
	{"a run is granted again only when its lease has ended by the claim's takeover rule", func(e *env) {
		t := e.past()
		e.granted(tickClaim("live", at(t)))
		c := tickClaim("expired", at(t))
		c.TTL = short
		e.granted(c)
		r := e.expire("expired")
		for name, rules := range map[string][]joblease.Takeover{
			"live":    everyRule(),
			"expired": append(misses(joblease.TakeSightedExpired, r), never),
		} {
			before := e.list()
			for _, takeover := range rules {
				c := tickClaim(name, again(t))
				c.Takeover = takeover
				e.held(c)
				e.unchanged(before, fmt.Sprintf("a takeover that was refused (%v)", takeover.Rule))
			}
		}
		c = tickClaim("expired", again(t))
		c.Takeover = sighted(joblease.TakeSightedExpired, r)
		e.granted(c)
	}},
	{"a run that has finished is never granted again", func(e *env) {
		stores := e.handles(2)
		t := e.past()
		for _, since := range []string{"released", "taken and released"} {
			g := e.granted(tickClaim(since, at(t)))
			g.Finished = true
			e.released(g)
			if since != "released" {
				e.released(e.granted(claim(since, long, never)))
			}
			for _, s := range stores {
				if r := e.tickRefusedBy(s, tickClaim(since, again(t))); !r.Done {
					e.Fatalf("%s: refused as unfinished: %v", since, r)
				}
			}
		}
	}},
	{"the run of an older tick is never granted again, finished or not", func(e *env) {
		t := e.past()
		for _, finished := range []bool{false, true} {
			name := fmt.Sprint("finished ", finished)
			g := e.granted(tickClaim(name, at(t)))
			g.Finished = finished
			e.released(g)
			e.released(e.granted(tickClaim(name, at(t.Add(time.Minute)))))
			e.tickRefused(tickClaim(name, again(t)))
		}
	}},
	{"of many candidates for an interrupted run exactly one is granted", func(e *env) {
		stores := e.handles(4)
		t := e.past()
		c := tickClaim("job", at(t))
		e.released(e.granted(c))
		for token := int64(2); token < 8; token++ {
			var winner joblease.Grant
			for _, o := range together(32, func(i int) outcome {
				g, err := e.acquire(stores[i%len(stores)], tickClaim("job", again(t)))
				return outcome{g, err}
			}) {
				switch {
				case o.err != nil:
					e.isHeld(o.err, "job")
				case !winner.Claim.IsZero():
					e.Fatalf("granted twice, with tokens %d and %d", winner.Token, o.grant.Token)
				default:
					winner = o.grant
				}
			}
			if winner.Token != token || !winner.Tick.Equal(t) {
				e.Fatalf("the winner has token %d, tick %v; want %d, %v", winner.Token, winner.Tick, token, t)
			}
			e.released(winner)
		}
	}},
}

var tickLimitChecks = []check{
	{"a tick is kept to the microsecond, and what is finer is cut off", func(e *env) {
		for _, t := range []time.Time{
			time.Unix(0, 0), time.Unix(0, 1000), time.UnixMicro(999_999), time.Unix(1<<29, 0).Add(-time.Microsecond),
			e.past(), e.past().Add(999 * time.Nanosecond), e.past().In(time.FixedZone("", 5*3600+1800)),
		} {
			name := t.Format(time.RFC3339Nano)
			g := e.granted(tickClaim(name, at(t)))
			e.ticked(name, micro(t), false)
			e.tickRefused(tickClaim(name, at(micro(t))))
			e.tickRefused(tickClaim(name, at(micro(t).Add(999*time.Nanosecond))))
			g.Finished = true
			e.released(g)
			e.ticked(name, micro(t), true)
			e.tickRefused(tickClaim(name, again(micro(t).Add(time.Nanosecond))))
			e.granted(tickClaim(name, at(t.Add(time.Microsecond))))
		}
		e.tickRefused(tickClaim("last", at(time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC))))
	}},
	{"a tick that cannot be kept or that says two things is an error and writes nothing", func(e *env) {
		t := e.past()
		e.released(e.granted(tickClaim("job", at(t))))
		before := e.list()
		for _, name := range []string{"job", "absent"} {
			for _, tick := range []joblease.Tick{
				{At: t.Add(time.Minute), Slot: time.Minute}, {Slot: -time.Minute}, {Slot: time.Nanosecond},
				{Slot: time.Second + time.Nanosecond}, {Again: true},
				at(time.Unix(-1, 0)), at(time.Time{}.Add(1)), at(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)),
			} {
				_, err := e.acquire(e.s, tickClaim(name, tick))
				e.unknown(err, fmt.Sprintf("acquire of the tick %+v", tick))
				if errors.As(err, new(*joblease.TickError)) {
					e.Fatalf("%+v is refused as a tick that may come: %v", tick, err)
				}
				e.unchanged(before, fmt.Sprintf("an acquire of the tick %+v", tick))
			}
		}
	}},
}
