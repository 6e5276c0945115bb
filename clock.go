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
