package joblease

import (
	"context"
	"errors"
)

// Do waits for the lease, runs fn while it is held, and releases it when fn has
// returned. Meanwhile it renews. It blocks until fn has returned. Calls of Do on
// one Lease take turns.
//
// The context of fn carries the grant ([GrantFrom]) and ends when the lease is
// lost, with a *[LostError] as its cause, or when ctx ends: then the lease is
// renewed until fn has returned, so that nobody starts before.
//
// The error is what fn returned, joined with a *[LostError] if the lease was lost
// before fn returned. If ctx ends before the lease is acquired, it is that of
// ctx. If fn has not returned StopTimeout after ctx ended, Do returns an
// *[OverrunError] and leaves the lease to expire. A panic of fn goes on as a panic
// with a *[PanicError], after the lease has been released.
func (l *Lease) Do(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return &ConfigError{"fn", nil, "must not be nil"}
	}
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer l.events.flush(l.cfg.CallTimeout)
	if _, err := l.campaign(ctx); err != nil {
		<-l.busy
		return err
	}
	end := l.hold(ctx, nil, fn)
	l.done(end)
	switch {
	case end.overrun != nil:
		return end.overrun
	case end.panicked != nil:
		panic(end.panicked)
	case end.lost != nil:
		return errors.Join(end.err, end.lost)
	}
	return end.err
}

// done lets the next user of the lease in, once the work of this one has stopped.
func (l *Lease) done(end termEnd) {
	if end.overrun == nil {
		<-l.busy
		return
	}
	// The only goroutine that outlives its starter: it ends with the work that
	// would not stop.
	go func() {
		<-end.stopped
		<-l.busy
	}()
}
