package joblease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is the dialogue of a Lease with its store: one request at a time, and
// what each kind of answer means.

// lock serialises the calls of this lease, so that a renewal cannot overtake a
// release and no two answers are taken for one another.
func (l *Lease) lock(ctx context.Context) error {
	select {
	case l.calls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("joblease: lease %q: %w", l.name, context.Cause(ctx))
	}
}

func (l *Lease) unlock() { <-l.calls }

// call runs f, one call to the store, with its bound.
func (l *Lease) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	return f(ctx)
}

// try sends one acquire. The same claim is sent until it is granted, so that a
// grant whose answer was lost is found again instead of being waited for.
//
// Each tick is a claim of its own. One whose outcome is not known is given back
// before the next: the database would answer with the grant of the tick before.
func (l *Lease) try(ctx context.Context, tick Tick) (Grant, error) {
	l.mu.Lock()
	l.noticeExpiry()
	if l.work != nil && !l.held {
		defer l.mu.Unlock()
		return Grant{}, fmt.Errorf("joblease: the work under the term before has not stopped: %w", l.lost)
	}
	if !l.held && !tick.same(l.tick) {
		if l.unsettled {
			l.disown()
		}
		l.claim = ClaimID{}
	}
	l.mu.Unlock()
	if err := l.freeAbandoned(ctx); err != nil && !errors.Is(err, ErrLost) {
		return Grant{}, err
	}

	l.mu.Lock()
	if l.claim.IsZero() {
		l.claim = NewClaimID()
	}
	sent := l.now()
	c := Claim{
		Name: l.name, ID: l.claim, Holder: l.cfg.Holder, TTL: l.cfg.TTL,
		Takeover: l.look.condition(sent.mono), Tick: tick,
	}
	l.tick = tick
	l.mu.Unlock()

	var g Grant
	err := l.call(ctx, func(ctx context.Context) (err error) {
		g, err = l.store.Acquire(ctx, c)
		return err
	})

	l.mu.Lock()
	defer l.mu.Unlock()
	answered := l.now()
	var refusal *HeldError
	var tickRefusal *TickError
	switch {
	case err == nil:
		l.clock.saw(g.ExpiresAt.Add(-g.TTL), sent, answered)
		if l.claim != c.ID { // its term ended while the call was under way
			l.answered()
			return Grant{}, l.notHeld()
		}
		if l.held && g.Token != l.grant.Token {
			// Another had it in between, and the claim was granted anew: that is
			// not the term which is on. Its end is told, and the grant given back.
			l.answered()
			l.lose(LostReplaced, nil)
			l.abandoned = g
			return Grant{}, l.notHeld()
		}
		return l.granted(g, sent)
	case errors.As(err, &tickRefusal):
		l.answered()
		l.clock.saw(tickRefusal.Clock, sent, answered)
	case errors.As(err, &refusal) && refusal.Claim == c.ID:
		// Not a rival, and no loss of what is held: a transaction locks the row.
		l.answered()
		l.unsettled = !l.held
		err = fmt.Errorf("joblease: lease %q is this candidate's, but a transaction locks its row", l.name)
	case errors.As(err, &refusal):
		l.answered()
		l.clock.saw(refusal.Clock, sent, answered)
		l.look.refused(refusal, sent.mono, answered.mono)
		l.refusal = refusal
		if l.held { // by this claim, until the row was taken from it
			l.lose(LostReplaced, nil)
		}
	case errors.As(err, new(*SetupError)): // which says that nothing was written
		l.failed(ctx, err)
	default:
		l.unsettled = !l.held
		l.failed(ctx, err)
	}
	return Grant{}, err
}

// granted begins or extends a term whose request was sent at that instant. The
// caller holds mu.
func (l *Lease) granted(g Grant, sent instant) (Grant, error) {
	l.answered()
	l.look.granted()
	l.refusal = nil
	if now := l.now(); !now.mono.Before(l.trustEnd(sent)) || now.ranAhead(sent) > l.cfg.Margin {
		// As when the process was frozen meanwhile. Nobody has relied on it; the
		// next try extends it.
		l.unsettled = !l.held
		return Grant{}, fmt.Errorf("joblease: the grant of lease %q came too late to be trusted", l.name)
	}
	extended := l.held
	l.held, l.unsettled, l.grant, l.lost = true, false, g, nil
	l.confirm(sent)
	if !extended {
		l.emit(Event{Kind: EventAcquired, Token: g.Token, Tick: g.Tick})
	}
	return g, nil
}

// confirm counts trust from sent, the instant before the request that the
// database has just confirmed: how long the answer took is known to nobody else.
// The caller holds mu.
func (l *Lease) confirm(sent instant) {
	l.sent, l.kicked = sent, false
	if l.work != nil && l.work.expiry != nil {
		l.work.expiry.Reset(time.Until(l.trustEnd(sent)))
	}
}

// renew sends one renewal.
func (l *Lease) renew(ctx context.Context) error {
	l.mu.Lock()
	l.noticeExpiry()
	if !l.held {
		defer l.mu.Unlock()
		return l.notHeld()
	}
	g, sent := l.grant, l.now()
	l.mu.Unlock()

	err := l.call(ctx, func(ctx context.Context) error { return l.store.Renew(ctx, g) })

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.answered()
	case errors.Is(err, ErrLost):
		l.answered()
		if l.held {
			l.lose(LostReplaced, nil)
		}
	default:
		l.failed(ctx, err)
	}
	l.noticeExpiry() // trust may have ended while the call was under way
	switch {
	case !l.held:
		return l.notHeld()
	case err != nil:
		return err
	}
	l.confirm(sent)
	if l.noticeExpiry(); !l.held {
		return l.notHeld()
	}
	l.emit(Event{Kind: EventRenewed, Token: g.Token, Tick: g.Tick})
	return nil
}

// release gives up whatever this lease holds or may hold.
func (l *Lease) release(ctx context.Context) error {
	l.mu.Lock()
	l.noticeExpiry()
	held := l.held
	switch {
	case held:
		l.lose(LostReleased, nil)
	case l.unsettled:
		l.disown()
	case l.abandoned.Claim.IsZero():
		defer l.mu.Unlock()
		return l.notHeld()
	}
	lost, tick := l.lost, l.abandoned.Tick
	l.mu.Unlock()

	err := l.freeAbandoned(ctx)
	switch {
	case err != nil && !errors.Is(err, ErrLost):
		return err
	case lost == nil: // it was never known to be held
		return nil
	case lost.Reason != LostReleased:
		return lost
	case held && err != nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = &LostError{Name: l.name, Token: lost.Token, Reason: LostReplaced}
		return l.lost
	}
	// Also when this was a second try that found nothing: the first one's answer
	// was lost.
	l.emit(Event{Kind: EventReleased, Token: lost.Token, Tick: tick})
	return nil
}

// disown makes a claim whose outcome is not known one that is to be released. The
// caller holds mu.
func (l *Lease) disown() {
	l.abandoned = Grant{Name: l.name, Claim: l.claim, Holder: l.cfg.Holder, TTL: l.cfg.TTL, Tick: l.tick.At}
	l.claim, l.unsettled, l.lost = ClaimID{}, false, nil
}

// freeAbandoned releases the claim of a term that ended without a release, which
// may still stand in the row, so that its successor does not wait for it to
// expire.
func (l *Lease) freeAbandoned(ctx context.Context) error {
	l.mu.Lock()
	g := l.abandoned
	l.mu.Unlock()
	if g.Claim.IsZero() {
		return nil
	}
	err := l.call(ctx, func(ctx context.Context) error { return l.store.Release(ctx, g) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil || errors.Is(err, ErrLost) {
		l.abandoned = Grant{}
		l.answered()
	} else {
		l.failed(ctx, err)
	}
	return err
}

// answered notes that the store answered. The caller holds mu.
func (l *Lease) answered() {
	if l.failures > 0 {
		l.emit(Event{Kind: EventRecovered, Failures: l.failures})
	}
	l.failures, l.lastErr = 0, nil
}

// failed notes an error of the store, unless it is the caller that gave up. The
// caller holds mu.
func (l *Lease) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.failures++
	l.lastErr = err
	l.emit(Event{Kind: EventFailing, Token: l.heldToken(), Failures: l.failures, Err: err})
}
