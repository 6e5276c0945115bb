package joblease

import (
	"time"
)

// Tick says which tick of a job a [Claim] is for. A tick is the instant at which
// a schedule says that the job is due, never the instant at which a replica woke
// up, so it is the same for all replicas. The row keeps the last tick that was
// claimed, also after the release, and a claim of that tick or an older one is
// refused for ever.
//
// A claim's ID belongs to one tick: a new tick is a new claim.
type Tick struct {
	// At is the instant. It must have come on the database's clock. Databases
	// keep microseconds, so what is finer is cut off before anything else is
	// done with it: two instants within one microsecond are one tick. Set either
	// At or Slot.
	At time.Time
	// Slot makes the tick the start of the slot in which the database's clock
	// stands: floor(clock/Slot) slots since 1970-01-01 UTC. If that one has been
	// claimed and the next begins within a quarter of Slot, the tick is the next
	// one, so that a timer whose phase jitters around the boundary misses none.
	// The clock is read once, before the answer: a reply that comes late can
	// grant a slot that is over.
	Slot time.Duration
	// Again allows the last tick to be claimed once more if its run was
	// interrupted: it was claimed and never finished, and its lease has ended,
	// by a release or as the claim's Takeover says.
	Again bool
}

// IsZero reports whether t names no tick.
func (t Tick) IsZero() bool { return t.At.IsZero() && t.Slot == 0 }

// CheckTick reports whether every store can keep t and tell it from others: it
// names no tick at all, or either At in the years 1970 to 9999 or Slot, a
// positive number of whole microseconds. The error is a *[ConfigError].
func CheckTick(t Tick) error {
	switch {
	case t.IsZero():
		if t.Again {
			return &ConfigError{"Tick.Again", t.Again, "needs At or Slot; a schedule that has ended has no instant to claim again"}
		}
		return nil
	case t.Slot == 0:
		if year := t.At.UTC().Year(); year < 1970 || year > 9999 {
			return &ConfigError{"Tick.At", t.At, "must be in the years 1970 to 9999"}
		}
		return nil
	case !t.At.IsZero():
		return &ConfigError{"Tick.At", t.At, "must be zero if Slot is set"}
	case t.Slot < 0 || t.Slot%time.Microsecond != 0:
		return &ConfigError{"Tick.Slot", t.Slot, "must be positive and whole microseconds, which is what databases keep"}
	}
	return nil
}

// same reports whether a claim for t may be sent again for u.
func (t Tick) same(u Tick) bool { return t.At.Equal(u.At) && t.Slot == u.Slot }
