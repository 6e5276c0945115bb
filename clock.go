package joblease

import "time"

// instant is one reading of both local clocks. All waiting and all trust go by
// the monotonic one. The wall clock only serves to notice that the monotonic one
// stood still, as it does on Linux while the machine is suspended
// (clock_gettime(2), CLOCK_MONOTONIC).
type instant struct {
	mono time.Time // with Go's monotonic reading
	wall time.Time // without one
}

// ranAhead returns by how much the wall clock advanced more than the monotonic
// one since earlier: the length of a suspend, or of a step.
func (i instant) ranAhead(earlier instant) time.Duration {
	return i.wall.Sub(earlier.wall) - i.mono.Sub(earlier.mono)
}

// wallClock reads the wall clock without the monotonic reading.
func wallClock() time.Time { return time.Now().Round(0) }

// dbClock is an estimate of the database's clock, from what its answers show and
// how the local monotonic clock advances. It decides when to ask, and nothing
// else: what has come is for the database to say.
type dbClock struct {
	shown time.Time // the estimate
	at    instant   // when it was made
}

// saw corrects the estimate by an answer. The database read its clock at some
// instant between the request and the answer, so an estimate within these bounds
// stands. The first one is the least, so that the ticks it says have come have.
func (c *dbClock) saw(clock time.Time, sent, answered instant) {
	if clock.IsZero() {
		return
	}
	least := clock.Round(0).UTC()
	most := least.Add(answered.mono.Sub(sent.mono))
	shown := least
	if known := c.now(answered); !c.shown.IsZero() && known.After(least) {
		if shown = known; shown.After(most) {
			shown = most
		}
	}
	c.shown, c.at = shown, answered
}

// now is what the database's clock shows, as far as that can be known.
func (c *dbClock) now(local instant) time.Time { return c.shown.Add(local.mono.Sub(c.at.mono)) }
