package joblease

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// term is what runs under one grant: the caller's work and the jobs that a gate
// has let in.
type term struct {
	lease *Lease
	grant Grant
	// ctx is that of the work: it ends when the work is to stop, for a shutdown
	// or a loss. jobs is that of its jobs, which may finish after a shutdown: it
	// ends with the right to work, at a loss or an overrun.
	ctx, jobCtx context.Context
	cancel      context.CancelCauseFunc // of ctx
	cancelJobs  context.CancelCauseFunc
	// lost is how the lease was lost before the work had stopped, nil if it was not.
	lost *LostError
	// expiry ends the term at the instant at which trust ends, whatever the
	// renewing loop waits for.
	expiry *time.Timer
	// cut says that the run of a tick was told to stop before it had ended. Only
	// the goroutine of the work writes it, and whoever waited for that reads it.
	cut bool

	mu     sync.Mutex
	closed bool           // no job is let in any more
	jobs   sync.WaitGroup // that have been let in
}

type termKey struct{}

// termFrom returns the term under which ctx runs, or nil.
func termFrom(ctx context.Context) *term {
	t, _ := ctx.Value(termKey{}).(*term)
	return t
}

// GrantFrom returns the grant under which ctx runs: in the function given to
// [Lease.Do], in a [Scheduler] under a [Supervisor], in a gated job, and in the run
// of a tick. A fence wants it.
func GrantFrom(ctx context.Context) (Grant, bool) {
	if t := termFrom(ctx); t != nil {
		return t.grant, true
	}
	return Grant{}, false
}

// Held reports whether the lease under which ctx runs may be trusted at this
// instant, also while the work is being stopped for a shutdown; see [Lease.Held].
// It does no I/O and never blocks. Work that does many things asks before each of
// them: the end of ctx alone comes late in a process that was frozen or suspended.
// It is false for a ctx without a lease.
func Held(ctx context.Context) bool {
	t := termFrom(ctx)
	return t != nil && t.trusted()
}

// trusted reports whether t is the term in force, and its lease trusted.
func (t *term) trusted() bool {
	t.lease.mu.Lock()
	defer t.lease.mu.Unlock()
	return t.lease.work == t && t.lease.heldNow()
}

// enter lets a job in, unless the term is ending or not trusted. The caller calls
// jobs.Done after it.
func (t *term) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.ctx.Err() != nil || !t.trusted() {
		return false
	}
	t.jobs.Add(1)
	return true
}

// end tells the work and the jobs that they have no right to go on.
func (t *term) end(cause error) {
	t.cancel(cause)
	t.cancelJobs(cause)
}

// run calls fn, and returns when neither it nor a job that was let in still runs.
// The result is written where fn cannot keep it from being read, since fn may end
// its goroutine.
func (t *term) run(fn func(context.Context) error, end *workEnd) {
	defer func() {
		end.own = t.ctx.Err() == nil
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		t.jobs.Wait()
	}()
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			end.panicked = &PanicError{Value: v, Stack: debug.Stack()}
			return
		}
		end.err = errGoexit
	}()
	end.err = fn(t.ctx)
	returned = true
}

var errGoexit = errors.New("joblease: the work ended its goroutine with runtime.Goexit")

// workEnd is how the work of a term came to its end.
type workEnd struct {
	err      error
	panicked *PanicError
	own      bool // it ended before it was told to stop
}

// termEnd is how a term came to its end.
type termEnd struct {
	workEnd
	lost    *LostError      // the lease was lost while the work ran
	overrun *OverrunError   // the work still runs; nothing else is set
	stopped <-chan struct{} // with overrun: closed when the work has stopped after all
}

// hold runs fn under the grant that the lease holds. It renews until fn has
// returned, also while fn drains after ctx or resign has told it to stop, and
// releases only then. When the lease is lost it ends fn's context and waits. The
// caller owns l.busy.
//
// Two goroutines take part, this one and the one of fn; the end of trust is a
// timer, so that it does not depend on either.
func (l *Lease) hold(ctx context.Context, resign <-chan struct{}, fn func(context.Context) error) termEnd {
	t := l.begin(ctx)
	done := make(chan workEnd, 1)
	stopped := make(chan struct{})
	go func() {
		var end workEnd
		defer close(stopped)
		defer func() { done <- end }()
		defer l.finish(t)
		t.run(fn, &end)
	}()

	renew := time.NewTimer(l.untilRenewal(nil))
	defer renew.Stop()
	deadline := time.NewTimer(l.cfg.StopTimeout) // runs once the work has been told to stop
	deadline.Stop()
	defer deadline.Stop()
	told, shutdown := t.ctx.Done(), ctx.Done()
	for {
		select {
		case end := <-done:
			return l.conclude(ctx, t, end)
		case <-renew.C:
		case <-l.kick:
		case <-resign:
			resign = nil
			t.cancel(errResigned)
			continue
		case <-told:
			told = nil
			deadline.Reset(l.cfg.StopTimeout)
			continue
		case <-shutdown:
			// Also when the work was told before: a shutdown gives it the time
			// that it was promised.
			shutdown = nil
			deadline.Reset(l.cfg.StopTimeout)
			continue
		case <-deadline.C:
			select {
			case end := <-done: // in time, while this loop waited for an answer
				return l.conclude(ctx, t, end)
			default:
			}
			overrun := &OverrunError{After: l.cfg.StopTimeout}
			l.giveUp(overrun)
			if ctx.Err() != nil {
				return termEnd{overrun: overrun, stopped: stopped}
			}
			continue // another term in this process must not begin before this one has stopped
		}
		err := l.Renew(context.WithoutCancel(ctx))
		if !errors.Is(err, ErrLost) {
			renew.Reset(l.untilRenewal(err))
		}
	}
}

var errResigned = errors.New("joblease: resigned")

// begin starts a term for the grant that the lease holds.
func (l *Lease) begin(ctx context.Context) *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.kick: // meant for the term before
	default:
	}
	t := &term{lease: l, grant: l.grant}
	jobs, cancelJobs := context.WithCancelCause(context.WithoutCancel(ctx))
	work, cancel := context.WithCancelCause(ctx)
	t.jobCtx, t.cancelJobs = context.WithValue(jobs, termKey{}, t), cancelJobs
	t.ctx, t.cancel = context.WithValue(work, termKey{}, t), cancel
	l.work = t
	if !l.held { // lost between the grant and here
		t.end(l.lost)
		return t
	}
	t.expiry = time.AfterFunc(time.Until(l.trustEnd(l.sent)), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.work != t || !l.held {
			return
		}
		if l.noticeExpiry(); l.held { // a renewal came in between
			t.expiry.Reset(time.Until(l.trustEnd(l.sent)))
		}
	})
	return t
}

// finish ends a term whose work has stopped.
func (l *Lease) finish(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noticeExpiry(); !l.held {
		t.lost = l.lost
	}
	if t.expiry != nil {
		t.expiry.Stop()
	}
	l.work = nil
}

// conclude releases the lease after its work has stopped, unless it is lost.
func (l *Lease) conclude(ctx context.Context, t *term, end workEnd) termEnd {
	l.mu.Lock()
	l.noticeExpiry()
	lost := t.lost // not what came after the work: that has been done under the lease
	if !t.grant.Tick.IsZero() && (!t.cut || end.err == nil) {
		// Nobody is to run this tick again. What the database hears of it is the
		// release, now or before the next claim.
		l.grant.Finished = true
		if l.abandoned.Claim == t.grant.Claim {
			l.abandoned.Finished = true
		}
	}
	l.mu.Unlock()
	var overrun *OverrunError
	switch {
	case errors.As(end.err, &overrun): // what the scheduler started still runs
		l.giveUp(overrun)
	case t.lost == nil || ctx.Err() != nil: // or the next campaign frees what may still stand
		l.giveBack(ctx)
	}
	t.end(nil)
	return termEnd{workEnd: end, lost: lost}
}

// giveUp stops renewing without a release, now or later: the work still runs, and
// whoever comes next, this replica too, must wait until the lease has expired.
func (l *Lease) giveUp(why *OverrunError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	token := l.grant.Token
	if l.noticeExpiry(); l.held {
		l.lose(LostOverrun, why)
	}
	l.abandoned = Grant{}
	l.emit(Event{Kind: EventOverrun, Token: token, Tick: l.grant.Tick, Err: why})
}

// untilRenewal is the wait for the next renewal after one that returned err, or
// after the acquire. It is spread over an eighth of RenewEvery, so that many
// leases of one process do not renew in step for ever.
func (l *Lease) untilRenewal(err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return l.retryPause(l.failures)
	}
	return time.Until(l.sent.mono.Add(l.cfg.RenewEvery - spread(l.cfg.RenewEvery)))
}
