package joblease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// campaign waits for the lease until it has it or ctx ends. A candidate sleeps
// until the instant at which the lease can be free, and is woken by a release if
// the store can tell; otherwise it also looks once per RenewEvery.
func (l *Lease) campaign(ctx context.Context) (Grant, error) {
	var watch Watch
	if w, ok := l.store.(Watcher); ok {
		watch = w.Watch(l.name)
		defer watch.Stop()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var standingBy ClaimID
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-timer.C:
		case <-watch.Wake: // nil without a Watcher: never
		}
		g, err := l.tryFor(ctx)
		if err == nil {
			return g, nil
		}
		var refusal *HeldError
		if errors.As(err, &refusal) && refusal.Claim != standingBy {
			standingBy = refusal.Claim
			l.emit(Event{Kind: EventStandby, Holder: refusal.Holder, Remaining: refusal.Remaining})
		}
		timer.Reset(l.pause(err, watch.Live != nil && watch.Live()))
	}
	l.mu.Lock()
	l.noticeExpiry()
	others := l.held || l.work != nil // what was held before is the caller's
	l.mu.Unlock()
	if !others {
		l.giveBack(ctx)
	}
	return Grant{}, fmt.Errorf("joblease: waiting for lease %q: %w", l.name, context.Cause(ctx))
}

// tryFor asks once on behalf of a campaign. The call does not end with ctx: an
// answer that is under way is worth waiting for, since a grant that nobody hears
// of keeps the others out for a TTL. A grant that comes after the end of ctx is
// given back before anyone else can build on it, unless it only extends what was
// held before.
func (l *Lease) tryFor(ctx context.Context) (Grant, error) {
	if err := l.lock(ctx); err != nil {
		return Grant{}, err
	}
	defer l.unlock()
	l.mu.Lock()
	l.noticeExpiry()
	held := l.held
	l.mu.Unlock()
	g, err := l.try(context.WithoutCancel(ctx), Tick{})
	if err == nil && !held && ctx.Err() != nil {
		if err := l.release(context.WithoutCancel(ctx)); err != nil {
			return Grant{}, err // and the end of the campaign tries again
		}
		return Grant{}, ctx.Err()
	}
	return g, err
}

// giveBack releases what the lease holds or may hold, on behalf of a caller whose
// ctx may have ended. It tries for twice CallTimeout, so that one call that hangs
// is not the end of it.
func (l *Lease) giveBack(ctx context.Context) {
	l.mu.Lock()
	standing := l.held || l.unsettled || !l.abandoned.Claim.IsZero()
	l.mu.Unlock()
	if !standing {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*l.cfg.CallTimeout)
	defer cancel()
	for n := 1; ; n++ {
		err := l.Release(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return
		}
		pause := time.NewTimer(l.retryPause(n))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			l.emit(Event{Kind: EventReleaseFailed, Err: err})
			return
		}
	}
}

// pause is how long a candidate waits after err. told says that a release would
// be told.
func (l *Lease) pause(err error, told bool) time.Duration {
	l.mu.Lock()
	failures, d := l.failures, l.look.next(time.Now())
	l.mu.Unlock()
	if !errors.Is(err, ErrHeld) {
		return l.retryPause(failures)
	}
	if d <= 0 { // it could be taken, but for a lock or a rival
		return l.retryPause(1)
	}
	if !told {
		return min(d, l.cfg.RenewEvery-spread(l.cfg.RenewEvery))
	}
	// The row may change in ways that nobody tells, so not longer than a TTL even
	// if the holder asked for more.
	return min(d, l.cfg.TTL)
}

// spread is a random part of d, up to an eighth, that keeps replicas and leases
// from acting in step.
func spread(d time.Duration) time.Duration { return rand.N(d/8 + 1) }
