package joblease

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Lease is one candidate for one name: it acquires, renews and releases, and
// knows at each instant whether it may still be trusted.
//
// A Lease is safe for concurrent use. It counts nothing: acquiring a lease that
// it already holds extends it, and one release frees it. Exclusion is between
// Lease values, in one process as well as across replicas, so each piece of work
// gets a Lease of its own.
type Lease struct {
	store  Store
	name   string
	cfg    Config // resolved
	events *notifier
	wall   func() time.Time

	calls chan struct{} // holds one value while a call to the store is under way
	busy  chan struct{} // holds one value while Do or Run uses the lease
	kick  chan struct{} // asks the renewing loop for a renewal at once

	mu        sync.Mutex
	look      takeover
	claim     ClaimID    // of this acquisition, or the one to try next
	tick      Tick       // for which claim was sent
	unsettled bool       // claim was sent and the outcome is not known
	abandoned Grant      // of a term that ended and may still stand in the row
	held      bool       // granted and neither lost nor released, as far as noticed
	grant     Grant      // the last one
	sent      instant    // before the request that last confirmed the grant
	kicked    bool       // a renewal has been asked for since
	lost      *LostError // how the last term ended
	failures  int        // failed calls in a row
	lastErr   error      // of the last call, nil if it was answered
	refusal   *HeldError // the last one
	clock     dbClock    // the database's, as far as its answers tell
	work      *term      // what runs under the lease, nil if nothing does
}

// New returns a lease of that name in s. It does no I/O. An argument that cannot
// work is reported as a *[ConfigError] that names it.
func New(s Store, name string, cfg Config) (*Lease, error) {
	if isNil(s) {
		return nil, &ConfigError{"Store", nil, "must not be nil; make one with pgstore.New or sqlstore.NewSQLite"}
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	return &Lease{
		store: s, name: name, cfg: cfg,
		events: &notifier{log: cfg.Logger, observe: cfg.Observe},
		wall:   wallClock,
		calls:  make(chan struct{}, 1), busy: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		look: takeover{margin: cfg.Margin},
	}, nil
}

// Name returns the name of the lease.
func (l *Lease) Name() string { return l.name }

// Held reports whether the lease may be trusted at this instant. It does no I/O
// and never blocks. It is false from (send of the last successful request) + TTL
// - Margin on the local monotonic clock, and while the wall clock has run ahead
// of the monotonic one by more than Margin since then, as after a suspend: then
// a renewal is asked for, and if that confirms the lease, Held is true again.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heldNow()
}

func (l *Lease) heldNow() bool {
	now := l.now()
	if !l.held || !now.mono.Before(l.trustEnd(l.sent)) {
		return false
	}
	if now.ranAhead(l.sent) > l.cfg.Margin {
		if !l.kicked { // once, so that a busy caller does not make a busy loop
			l.kicked = true
			select {
			case l.kick <- struct{}{}:
			default:
			}
		}
		return false
	}
	return true
}

// TryAcquire asks for the lease once. It blocks for at most CallTimeout, twice that
// if a lost lease of its own has to be freed first, or until ctx ends.
//
// The error is a *[HeldError] if another claim holds the lease. Any other error
// leaves the outcome unknown: the next try finds out without losing time, and
// [Lease.Release] cleans up. Acquiring again after a loss says that the work
// under the lost lease has stopped.
func (l *Lease) TryAcquire(ctx context.Context) (Grant, error) { return l.tryTick(ctx, Tick{}) }

// tryTick asks once for the lease, for a tick unless that is zero.
func (l *Lease) tryTick(ctx context.Context, tick Tick) (Grant, error) {
	if err := l.lock(ctx); err != nil {
		return Grant{}, err
	}
	defer l.unlock()
	return l.try(ctx, tick)
}

// Acquire waits for the lease until it has it or ctx ends. It goes on through
// every error of the store; the log and the observer are told. When ctx ends
// while a request is under way, Acquire waits for the answer, at most
// CallTimeout, and gives back what it got, in at most two more. The error is then that of ctx.
func (l *Lease) Acquire(ctx context.Context) (Grant, error) { return l.campaign(ctx) }

// Renew extends the lease by another TTL. It blocks for at most CallTimeout, or
// until ctx ends. [Lease.Do] and a [Supervisor] renew by themselves.
//
// The error is a *[LostError] if the lease is not held any more. Any other error
// is not a loss: the lease may be trusted as long as [Lease.Held] says so, and
// renewing again is worth it.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	return l.renew(ctx)
}

// Release frees the lease for others at once. The work under it must have
// stopped. The lease is not held from the call on, whatever comes back. It blocks
// for at most CallTimeout, or until ctx ends, and does not retry.
//
// The error is a *[LostError] if the lease was not held any more; its successor,
// if there is one, is not touched. After any other error the lease may stand in
// the database until it expires; the next call of any method tries again.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.lock(ctx); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held { // not any more, and the next call frees it
			l.lose(LostReleased, nil)
		}
		return err
	}
	defer l.unlock()
	return l.release(ctx)
}

// lose ends the term. The caller holds mu.
func (l *Lease) lose(reason LostReason, err error) {
	l.held, l.lost = false, &LostError{Name: l.name, Token: l.grant.Token, Reason: reason, Err: err}
	if reason == LostExpired || reason == LostReleased {
		l.abandoned = l.grant
	}
	l.claim, l.unsettled = ClaimID{}, false
	if l.work != nil {
		l.work.end(l.lost)
	}
	if reason != LostReleased && reason != LostOverrun {
		l.emit(Event{Kind: EventLost, Token: l.grant.Token, Tick: l.grant.Tick, Err: l.lost})
	}
}

// noticeExpiry ends the term if trust has ended. The caller holds mu.
func (l *Lease) noticeExpiry() {
	if l.held && !time.Now().Before(l.trustEnd(l.sent)) {
		l.lose(LostExpired, l.lastErr)
	}
}

// notHeld returns why the lease is not held. The caller holds mu.
func (l *Lease) notHeld() error {
	if l.lost != nil {
		return l.lost
	}
	return &LostError{Name: l.name, Reason: LostNeverHeld}
}

func (l *Lease) heldToken() int64 {
	if l.held {
		return l.grant.Token
	}
	return 0
}

// trustEnd is the local instant from which a lease that was confirmed by a
// request sent at that instant is not trusted any more.
func (l *Lease) trustEnd(sent instant) time.Time { return sent.mono.Add(l.cfg.TTL - l.cfg.Margin) }

func (l *Lease) now() instant { return instant{mono: time.Now(), wall: l.wall()} }

func (l *Lease) emit(e Event) {
	e.Time, e.Lease, e.Replica = time.Now(), l.name, l.cfg.Holder
	l.events.emit(e)
}

// retryPause is the wait before the next try after n failures in a row. It grows
// to half of RenewEvery, so that a holder whose renewals fail tries several times
// before trust ends, and it is spread so that replicas do not try in step.
func (l *Lease) retryPause(n int) time.Duration {
	longest := l.cfg.RenewEvery / 2
	pause := longest >> max(0, 4-n)
	return pause/2 + rand.N(pause/2+1)
}
