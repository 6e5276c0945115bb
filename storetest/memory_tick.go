package storetest

import (
	"time"

	"github.com/joblease/joblease"
)

// tickOf returns the tick that t asks for when r is what stands there; zero if
// it asks for none.
func tickOf(t joblease.Tick, r row, now time.Time) time.Time {
	if t.Slot == 0 {
		return micro(t.At)
	}
	slot, us := t.Slot.Microseconds(), now.UnixMicro()
	start := us / slot * slot
	if claimed := !r.tick.IsZero() && r.tick.UnixMicro() >= start; claimed && 4*(start+slot-us) <= slot {
		start += slot
	}
	return time.UnixMicro(start).UTC()
}

// claimable reports whether tick, which t asked for, can be claimed by a claim
// that does not hold the lease.
func claimable(t joblease.Tick, tick time.Time, r row, now time.Time) bool {
	switch {
	case t.IsZero():
		return true
	case t.Slot == 0 && tick.After(now): // a slot is claimed early on purpose
		return false
	case t.Again && r.unfinished && tick.Equal(r.tick):
		return true
	}
	return tick.After(r.tick)
}

// micro returns t as databases keep it, and the zero time as it is.
func micro(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
