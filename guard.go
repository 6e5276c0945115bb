package joblease

import (
	"context"
	"sync"
	"time"
)

// Guard runs each tick of a job on one replica. There is no leader: every replica
// keeps its own timer, all of them claim the tick when it is due, and the database
// grants it to one, for ever. A tick is an instant of the job's schedule, never
// the instant at which a replica woke up; see [Tick]. While the run lasts its
// lease is renewed, so that runs of one job never overlap; then it is released.
//
// There are three ways in: [Guard.Run] is a scheduler of its own, [Guard.Wrap] is
// for jobs of a scheduler that every replica runs, and [Guard.Once] and
// [Guard.Slot] are for loops. They may be mixed, for different jobs.
//
// A job is a lease of that name, in the same table as those of a [Supervisor]: the
// two need different names. A Guard remembers each job that it has met, a few
// hundred bytes each, so names are not made up for single runs. All methods are
// safe for concurrent use.
//
// A tick that is won costs two statements, its claim and its end, and one more for
// each RenewEvery that it runs; one that is lost costs one, which writes nothing.
type Guard struct {
	store  Store
	cfg    Config // resolved
	events *notifier
	wall   func() time.Time

	mu      sync.Mutex
	leases  map[string]*Lease
	looping map[string]bool // jobs of a Run under way
}

// NewGuard returns a guard of jobs whose leases are in s. It does no I/O and
// starts nothing. An argument that cannot work is reported as a *[ConfigError]
// that names it. Every lease of the guard gets cfg; its TTL has nothing to do with
// how often a job runs.
func NewGuard(s Store, cfg Config) (*Guard, error) {
	l, err := New(s, "any", cfg)
	if err != nil {
		return nil, err
	}
	return &Guard{
		store: s, cfg: l.cfg, events: l.events, wall: wallClock,
		leases: map[string]*Lease{}, looping: map[string]bool{},
	}, nil
}

// lease returns the lease of the job. Its memory of the row, as a candidate's,
// lasts as long as the guard.
func (g *Guard) lease(job string) (*Lease, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.leases[job]
	if l == nil {
		var err error
		if l, err = New(g.store, job, g.cfg); err != nil {
			return nil, err
		}
		l.events, l.wall = g.events, g.wall
		g.leases[job] = l
	}
	return l, nil
}

// Once runs fn if this replica wins the tick of job that was due at that instant,
// and reports whether it ran. at is an instant of a schedule that all replicas
// share, in whole microseconds; what is finer is cut off. Ticks are claimed in
// order: when a later one has been, at is refused.
//
//   - false and nil: the tick is another's, or was run before.
//   - false and [ErrHeld]: an earlier tick still runs, or its replica has died
//     within the last TTL. The tick has not been claimed. The error is a
//     *[HeldError] unless the job runs in this process.
//   - false and any other error: the store did not answer, or ctx ended, or the
//     lease was lost before fn began. The tick is not run here. Calling again with
//     the same at is worth it, and finds a grant whose answer was lost.
//   - true and the error of fn, joined with a *[LostError] if the lease was lost
//     while it ran.
//
// The context of fn carries the grant ([GrantFrom]), which names the tick, and
// ends when the lease is lost, with a *[LostError] as its cause, or when ctx ends:
// then the lease is renewed until fn has returned. If fn has not returned
// StopTimeout after that, Once returns an *[OverrunError], with true, and the lease
// is left to expire. A panic of fn goes on as a panic with a *[PanicError], after
// the lease has been released.
//
// Once blocks until fn has returned. Before that it waits until the tick has come
// by the database's clock, for up to ten minutes (a tick further ahead is a
// *[TickError]); for the answers, two CallTimeouts; and if a dead replica's lease
// has expired but may not be taken over yet, for a TTL and a Margin.
func (g *Guard) Once(ctx context.Context, job string, at time.Time, fn func(ctx context.Context) error) (ran bool, err error) {
	if at.IsZero() {
		return false, &ConfigError{"at", at, "must be an instant of the job's schedule"}
	}
	return g.once(ctx, job, Tick{At: at.UTC().Truncate(time.Microsecond)}, fn)
}

// Slot runs fn if this replica wins the slot of job in which the database's clock
// stands; slots of length every are counted from the beginning of 1970 in UTC. It
// is for a plain [time.Ticker] loop on each replica, started whenever: one run a
// slot, for any number of replicas and phases. None is left out when a lone
// ticker's wake-ups jitter around the boundary, since one that comes within a
// quarter of a slot before the next may claim that one early; only when they first
// cross it, from the end of slots to their beginning, there is one fewer of them
// than of slots. every is whole microseconds.
//
// The results are those of [Guard.Once].
func (g *Guard) Slot(ctx context.Context, job string, every time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	if every == 0 {
		return false, &ConfigError{"every", every, "must be positive"}
	}
	return g.once(ctx, job, Tick{Slot: every}, fn)
}

func (g *Guard) once(ctx context.Context, job string, tick Tick, fn func(context.Context) error) (bool, error) {
	if fn == nil {
		return false, &ConfigError{"fn", nil, "must not be nil"}
	}
	if err := CheckTick(tick); err != nil {
		return false, err
	}
	l, err := g.lease(job)
	if err != nil {
		return false, err
	}
	run := l.runTick(ctx, tick, work{fn: fn})
	return run.began, run.result()
}
