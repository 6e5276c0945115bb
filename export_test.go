package joblease

import "time"

// ShiftWall makes the wall clock that l looks at run ahead by what shift returns.
func (l *Lease) ShiftWall(shift func() time.Duration) {
	l.wall = func() time.Time { return wallClock().Add(shift()) }
}

// Lease returns the lease that s supervises.
func (s *Supervisor) Lease() *Lease { return s.lease }

// ShiftWall sets the wall clock of a replica: it affects the jobs that g meets
// from now on.
func (g *Guard) ShiftWall(shift func() time.Duration) {
	g.wall = func() time.Time { return wallClock().Add(shift()) }
}
