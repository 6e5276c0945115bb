package storetest

import (
	"time"

	"github.com/joblease/joblease"
)

const (
	runFinished = "a run is finished only when its release says so"
	runLost     = "a release that is lost finishes nothing"
	runAgain    = "a run that was interrupted is granted again, to claims that ask for that only"
	runLive     = "a run is granted again only when its lease has ended by the claim's takeover rule"
	runNever    = "a run that has finished is never granted again"
	runOlder    = "the run of an older tick is never granted again, finished or not"
	runRace     = "of many candidates for an interrupted run exactly one is granted"
)

var runFaults = []fault{
	{"a release finishes the run", []string{runFinished, runAgain}, releasing(func(r *row, _ joblease.Grant, err error) {
		r.unfinished = r.unfinished && err != nil
	})},
	{"a release never finishes the run", []string{runFinished, runNever}, releasing(func(r *row, _ joblease.Grant, err error) {
		r.unfinished = r.unfinished || err == nil && !r.tick.IsZero()
	})},
	{"a renewal finishes the run", []string{runFinished, tickOwn}, onRenew(func(r *row, _ row) { r.unfinished = false })},
	{"a tick is finished from the start", []string{runFinished}, onChange(func(r *row, _ row) { r.unfinished = false })},
	{"a new tick is finished if the last one was", []string{runFinished}, onChange(func(r *row, old row) {
		r.unfinished = r.unfinished && (old.unfinished || old.tick.IsZero())
	})},
	{"a release that is lost finishes the run of its successor", []string{runLost}, releasing(func(r *row, g joblease.Grant, _ error) {
		r.unfinished = r.unfinished && !g.Finished
	})},
	{"Again ignores that the run has finished", []string{runNever, slotLikeTick}, claiming(func(a asked, tick time.Time) bool {
		return rightly(a, tick) || a.Tick.Again && tick.Equal(a.r.tick)
	})},
	{"an interrupted run is granted again to all", []string{runAgain, tickOnce}, claiming(func(a asked, tick time.Time) bool {
		return rightly(a, tick) || a.r.unfinished && tick.Equal(a.r.tick)
	})},
	{"an interrupted run is not granted again", []string{runAgain}, claiming(func(a asked, tick time.Time) bool {
		a.Tick.Again = false
		return rightly(a, tick)
	})},
	{"a run that is granted again is finished at once", []string{runAgain}, onChange(func(r *row, old row) {
		r.unfinished = r.unfinished && !r.tick.Equal(old.tick)
	})},
	{"Again takes the lease of a run that lasts", []string{runLive}, asking(func(c *joblease.Claim, r joblease.Record) {
		if c.Tick.Again && !r.Claim.IsZero() {
			c.Takeover = sighted(joblease.TakeSighted, r)
		}
	})},
	{"Again looks at the expiry only", []string{runLive}, asking(func(c *joblease.Claim, _ joblease.Record) {
		if c.Tick.Again {
			c.Takeover = expired
		}
	})},
	{"Again grants older ticks if the last run is unfinished", []string{runOlder}, claiming(func(a asked, tick time.Time) bool {
		return rightly(a, tick) || a.Tick.Again && a.r.unfinished
	})},
	{"an acquire of an interrupted run is not atomic", []string{runRace}, unguarded},
}

const (
	slotOnce     = "a slot is granted once, and the next when it begins or in the last quarter before"
	slotEarly    = "a slot that is not claimed in time is not claimed early either"
	slotEpoch    = "a slot begins a whole number of lengths after 1970 on the database's clock"
	slotLikeTick = "a slot is refused, held, interrupted and granted again like any tick"
	slotRace     = "of many candidates for a slot exactly one is granted, slot after slot"
)

// slots lets pick say which slot a claim gets, given where the clock's slot
// starts and how far it is to the next.
func slots(pick func(a asked, start time.Time, ahead time.Duration) time.Time) func(b *broken) {
	return judging(func(a asked) time.Time {
		if a.Tick.Slot == 0 {
			return a.tick()
		}
		start, _ := slotAt(a.now, a.Tick.Slot)
		return pick(a, start.UTC(), start.Add(a.Tick.Slot).Sub(a.now))
	}, rightly)
}

func (a asked) claimed(start time.Time) bool { return !a.r.tick.Before(start) }

var slotFaults = []fault{
	{"the next slot is granted in the last half", []string{slotOnce}, slots(func(a asked, start time.Time, ahead time.Duration) time.Time {
		if a.claimed(start) && 2*ahead <= a.Tick.Slot {
			return start.Add(a.Tick.Slot)
		}
		return start
	})},
	{"the next slot is granted in the last eighth", []string{slotOnce}, slots(func(a asked, start time.Time, ahead time.Duration) time.Time {
		if a.claimed(start) && 8*ahead <= a.Tick.Slot {
			return start.Add(a.Tick.Slot)
		}
		return start
	})},
	{"no slot is granted early", []string{slotOnce}, slots(func(_ asked, start time.Time, _ time.Duration) time.Time { return start })},
	{"two slots are granted early", []string{slotOnce}, slots(func(a asked, start time.Time, ahead time.Duration) time.Time {
		for a.claimed(start) && 4*ahead <= a.Tick.Slot {
			start = start.Add(a.Tick.Slot)
		}
		return start
	})},
	{"a slot is granted early also before the one before it", []string{slotEarly}, slots(func(a asked, start time.Time, ahead time.Duration) time.Time {
		if 4*ahead <= a.Tick.Slot {
			return start.Add(a.Tick.Slot)
		}
		return start
	})},
	{"a slot begins when it is claimed", []string{slotOnce, slotEpoch}, slots(func(a asked, _ time.Time, _ time.Duration) time.Time {
		return micro(a.now)
	})},
	{"a slot lasts until its length has passed since the last", []string{slotOnce}, slots(func(a asked, start time.Time, _ time.Duration) time.Time {
		if next := a.r.tick.Add(a.Tick.Slot); next.After(a.now) {
			return a.r.tick
		}
		return start
	})},
	{"slots are told by the replica's clock", []string{slotEpoch}, slots(func(a asked, _ time.Time, _ time.Duration) time.Time {
		start, _ := slotAt(time.Now(), a.Tick.Slot)
		return start.UTC()
	})},
	{"slots are counted from the year 1", []string{slotEpoch}, slots(func(a asked, _ time.Time, _ time.Duration) time.Time {
		return a.now.Truncate(a.Tick.Slot)
	})},
	{"slots are counted from midnight", []string{slotEpoch}, slots(func(a asked, _ time.Time, _ time.Duration) time.Time {
		midnight := a.now.Truncate(24 * time.Hour)
		return midnight.Add(a.now.Sub(midnight).Truncate(a.Tick.Slot))
	})},
	{"a refusal in the last quarter tells the slot of the clock", []string{slotOnce}, refusingTick(func(b *broken, e *joblease.TickError) {
		if e.At.After(e.Clock) {
			e.At = e.At.Add(-slotLen)
		}
	})},
}
