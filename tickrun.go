package joblease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxAhead is how far the clock of a replica may be ahead of the database's: a
// tick that has not come yet is waited for that long.
const maxAhead = 10 * time.Minute

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
