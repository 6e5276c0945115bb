package joblease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Wrap guards a job of a scheduler that every replica runs and that knows nothing
// of leases. With robfig/cron:
//
//	daily, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 0 6 * * *")
//	...
//	report, err := guard.Wrap(ctx, "report", daily, sendReport)
//	...
//	c.Schedule(daily, cron.FuncJob(report))
//
// When the returned function is called, it takes the latest instant that s gives
// up to now, on the local clock, once; if there is none since the call before, it
// does nothing. It claims that tick, and runs fn if this replica wins it. The local
// clock only tells that the scheduler woke it for a tick; the database's says what
// is due: a tick that has not come is waited for, for up to ten minutes, and when a
// later one has come too, that is taken.
//
// s must be the schedule by which the function is called. It is asked in
// time.Local, as robfig/cron does; for a cron.WithLocation, use [In] or name the
// zone in the spec.
//
// ctx is the life of the job: when it ends, calls do nothing. A run that has begun
// may finish: its context carries the grant ([GrantFrom]), and ends when the lease
// is lost, or StopTimeout after ctx has ended; then the call returns, and the lease
// is left to expire. So a service that is to end cancels ctx, and then waits for
// its scheduler as usual.
//
// A store that fails is asked again for up to a TTL, not beyond the next tick.
// Errors are told to the log and the observer. A tick is not run if an earlier one
// still is. A panic of fn goes on as a panic of the returned function with a
// *[PanicError], after the lease has been released.
//
// An argument that cannot work, such as a schedule without instants that replicas
// share, is reported as a *[ConfigError]; see [Schedule].
func (g *Guard) Wrap(ctx context.Context, job string, s Schedule, fn func(ctx context.Context) error) (func(), error) {
	if fn == nil {
		return nil, &ConfigError{"fn", nil, "must not be nil"}
	}
	now := g.wall().In(time.Local)
	if err := checkSchedule(s, now); err != nil {
		return nil, err
	}
	l, err := g.lease(job)
	if err != nil {
		return nil, err
	}
	w := &wrapped{guard: g, lease: l, schedule: s, fn: fn, seen: now}
	return func() { w.run(ctx) }, nil
}

// wrapped is a job that somebody else's timer calls.
type wrapped struct {
	guard    *Guard
	lease    *Lease
	schedule Schedule
	fn       func(context.Context) error

	mu   sync.Mutex
	seen time.Time // ticks up to here have been taken by a call
}

// tick takes the tick for which the timer has called.
func (w *wrapped) tick() (tick time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, slack := w.guard.wall().In(time.Local), w.lease.cfg.Margin
	if w.seen.After(now.Add(slack)) {
		w.seen = now.Add(-slack) // the clock was set back
	}
	if ticks := newest(w.schedule, w.seen, now, 1); len(ticks) > 0 {
		w.seen = ticks[0]
		return w.seen, true
	}
	// A timer that was set an hour ago may be early by the wall clock, if that was
	// slewed in the meantime.
	if next := nextTick(w.schedule, w.seen); !next.IsZero() && !next.After(now.Add(slack)) {
		w.seen = next
		return next, true
	}
	return time.Time{}, false
}

// behind replaces tick by a later one that has come by the database's clock: that
// of a replica whose clock is behind by more than an interval. The others are at
// the later one, and the run of an old one would keep them from it.
func (w *wrapped) behind(ctx context.Context, tick time.Time) time.Time {
	l := w.lease
	if !l.clockKnown() { // once
		_, _ = l.peek(context.WithoutCancel(ctx)) // the claim will tell what is wrong
	}
	if !l.clockKnown() {
		return tick
	}
	now, _ := l.databaseNow()
	if later := newest(w.schedule, tick, now.In(tick.Location()), 1); len(later) > 0 {
		return later[0]
	}
	return tick
}

func (w *wrapped) run(ctx context.Context) {
	l := w.lease
	tick, ok := w.tick()
	if !ok || ctx.Err() != nil {
		return
	}
	tick = w.behind(ctx, tick)
	patience := l.cfg.TTL
	if next := nextTick(w.schedule, tick); !next.IsZero() {
		patience = min(patience, next.Sub(tick))
	}
	var failing time.Time
	for n := 1; ; n++ {
		run := l.runTick(ctx, Tick{At: tick.UTC()}, work{w.fn, true})
		switch {
		case run.granted:
			l.report(run)
			_ = run.result() // reported; a panic goes on
			return
		case run.err == nil || ctx.Err() != nil:
			return
		case failing.IsZero():
			failing = time.Now()
		}
		if errors.Is(run.err, ErrHeld) || errors.As(run.err, new(*TickError)) || time.Since(failing) >= patience {
			l.missed(tick, run.err)
			return
		}
		pause(ctx, l.retryPause(n), nil)
	}
}
