package joblease

import (
	"context"
	"errors"
	"fmt"
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

// maxAhead is how far the clock of a replica may be ahead of the database's: a
// tick that has not come yet is waited for that long.
const maxAhead = 10 * time.Minute

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

// runTick claims tick, once it has come, and runs w under it.
func (l *Lease) runTick(ctx context.Context, tick Tick, w work) tickRun {
	patience := time.Now().Add(l.cfg.TTL + l.cfg.Margin + l.cfg.CallTimeout)
	for {
		if ctx.Err() != nil {
			return tickRun{err: context.Cause(ctx)}
		}
		now, stale := l.databaseNow()
		if early := tick.At.Sub(now); !tick.At.IsZero() && !stale && early > 0 && early <= maxAhead {
			pause(ctx, early, nil)
			continue
		}
		select {
		case l.busy <- struct{}{}:
		default:
			if stale && !tick.At.IsZero() {
				// What runs may be over when this tick comes.
				if _, err := l.peek(context.WithoutCancel(ctx)); err == nil {
					continue
				}
			}
			return tickRun{err: l.busyHere(tick)}
		}
		run := l.attempt(ctx, tick, w)
		l.done(run.end)
		var refusal *TickError
		var held *HeldError
		switch {
		case run.granted:
			return run
		case errors.As(run.err, &refusal):
			if !refusal.Last.Before(refusal.At) {
				return tickRun{} // it has been claimed
			}
			early := refusal.At.Sub(refusal.Clock)
			if early > maxAhead {
				return run
			}
			pause(ctx, early, nil)
		case errors.As(run.err, &held) && held.Remaining <= 0 && time.Now().Before(patience):
			pause(ctx, l.pause(run.err, false), nil)
		default:
			return run
		}
	}
}

// busyHere is the refusal of a tick while the job runs in this process.
func (l *Lease) busyHere(tick Tick) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held && !tick.At.IsZero() && !l.grant.Tick.Before(tick.At) {
		return nil // claimed: it is the one that runs, or an older one
	}
	return fmt.Errorf("joblease: job %q is being run or claimed in this process: %w", l.name, ErrHeld)
}

// tickRun is what came of one claim of a tick.
type tickRun struct {
	granted bool
	began   bool // fn was called
	cut     bool // fn was told to stop before it had ended, or never called
	grant   Grant
	end     termEnd // if granted
	err     error   // of the claim
}

// work is what a tick runs.
type work struct {
	fn func(context.Context) error
	// mayFinish: a shutdown does not end the context of fn, as long as its lease
	// lasts; only StopTimeout does.
	mayFinish bool
}

// attempt claims tick once, and runs w under it if it is granted. The caller owns
// l.busy, and gives it back with l.done.
func (l *Lease) attempt(ctx context.Context, tick Tick, w work) (run tickRun) {
	// Not ended by ctx: nobody else runs a tick whose grant nobody hears of.
	run.grant, run.err = l.claimTick(context.WithoutCancel(ctx), tick)
	if run.err != nil {
		return run
	}
	run.granted = true
	// Both are written by the goroutine of the work. They are read when that has
	// ended, except after an overrun: then the work has begun and was cut.
	began, cut := false, true
	run.end = l.hold(ctx, nil, func(ctx context.Context) error {
		t := termFrom(ctx)
		t.cut = true
		// The clocks are asked once more: the process may have been frozen since
		// the grant. A ctx that the caller has ended is no reason not to begin,
		// since the tick is claimed: fn is told to stop, as if it had just begun.
		if !confirmed(ctx) && !t.trusted() {
			return errNotBegun
		}
		if w.mayFinish {
			ctx = t.jobCtx
		}
		began = true
		defer func() {
			cut = ctx.Err() != nil
			t.cut = cut
		}()
		return w.fn(ctx)
	})
	overrun := run.end.overrun != nil
	run.began, run.cut = overrun || began, overrun || cut
	return run
}

var errNotBegun = errors.New("joblease: the lease was lost before the run began")

// claimTick asks for tick once. The answer to the claim of a slot may be that of
// one that is over, since a claim keeps its slot when it is sent again: then that
// slot has been given up before, and the present one is claimed.
func (l *Lease) claimTick(ctx context.Context, tick Tick) (Grant, error) {
	g, err := l.tryTick(ctx, tick)
	if err != nil || tick.Slot == 0 || g.ExpiresAt.Add(-g.TTL).Before(g.Tick.Add(tick.Slot)) {
		return g, err
	}
	if err := l.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		return Grant{}, err
	}
	return l.tryTick(ctx, tick)
}

// result is what a caller is told who runs one tick: also the panic.
func (r tickRun) result() error {
	switch {
	case !r.granted:
		return r.err
	case r.end.overrun != nil:
		return r.end.overrun
	case r.end.panicked != nil:
		panic(r.end.panicked)
	case r.end.lost != nil:
		return errors.Join(r.end.err, r.end.lost)
	}
	return r.end.err // errNotBegun if ctx ended while the lease waited to be confirmed
}

// report tells the observer what went wrong with a run of which no caller hears.
func (l *Lease) report(r tickRun) {
	err := workError(r.end)
	if r.end.panicked != nil {
		err = r.end.panicked
	}
	if r.began && err != nil {
		l.emit(Event{Kind: EventWorkFailed, Token: r.grant.Token, Tick: r.grant.Tick, Err: err})
	}
}

// missed tells that tick has been given up, because of err.
func (l *Lease) missed(tick time.Time, err error) {
	l.emit(Event{Kind: EventTickMissed, Tick: tick.UTC(), Err: err})
}

// pause waits for d, for a value from wake, or for the end of ctx.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}
