package joblease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Supervisor keeps a [Scheduler] in step with a lease: it asks for the lease for
// as long as it runs, starts the scheduler when it has it, and stops it when the
// lease is lost, resigned or the service ends. Make one for each independent
// scheduler, or for each tenant.
//
// All methods are safe for concurrent use.
type Supervisor struct {
	lease     *Lease
	scheduler Scheduler

	mu     sync.Mutex
	state  State
	terms  int64
	resign chan struct{} // of the term in force, closed by Resign; nil between terms
	ended  chan struct{} // of the term in force, closed at its end
}

// NewSupervisor returns a supervisor of sch under the lease of that name in s. It
// does no I/O and starts nothing. An argument that cannot work is reported as a
// *[ConfigError] that names it.
func NewSupervisor(s Store, name string, sch Scheduler, cfg Config) (*Supervisor, error) {
	if isNil(sch) {
		return nil, &ConfigError{"Scheduler", nil, "must not be nil; Idle() is one that does nothing"}
	}
	if own, ok := sch.(scheduler); ok && own.invalid != nil {
		return nil, own.invalid
	}
	l, err := New(s, name, cfg)
	if err != nil {
		return nil, err
	}
	return &Supervisor{lease: l, scheduler: sch}, nil
}

// Run keeps the scheduler in step with the lease until ctx ends. It blocks until
// all that it started has ended, and goes on through every error of the store.
//
// When ctx ends, Run stops the scheduler, renews until it has stopped, releases
// the lease and returns nil, or the scheduler's error. If the scheduler has not
// stopped after StopTimeout, Run returns an *[OverrunError] and the lease is left
// to expire. Beyond StopTimeout, Run takes at most five CallTimeouts: two for
// requests that are under way, two for the release, one for callbacks to be told.
//
// Before ctx ends, Run returns only if the scheduler returned nil by itself: the
// work is finished, the lease is released, and Run returns nil. If the scheduler
// returns an error, the lease is released and Run asks for it again after a
// pause. If it panics, the lease is released and the panic goes on with a
// *[PanicError].
//
// A second Run at the same time, or while the work of an overrun one still runs,
// is an error.
func (s *Supervisor) Run(ctx context.Context) error {
	l := s.lease
	select {
	case l.busy <- struct{}{}:
	default:
		return fmt.Errorf("joblease: the supervisor of %q runs already, or what it ran has not stopped", l.name)
	}
	defer l.events.flush(l.cfg.CallTimeout)
	end, err := s.supervise(ctx)
	s.setState(Stopped)
	l.done(end)
	if end.panicked != nil {
		panic(end.panicked)
	}
	return err
}

// supervise runs term after term, and returns the end of the last one.
func (s *Supervisor) supervise(ctx context.Context) (termEnd, error) {
	var failures int
	for ctx.Err() == nil {
		s.setState(Standby)
		if _, err := s.lease.campaign(ctx); err != nil {
			return termEnd{}, nil // only the end of ctx ends a campaign
		}
		began := time.Now()
		end, resigned := s.term(ctx)
		failure := workError(end)
		if end.panicked != nil {
			failure = end.panicked
		}
		if failure != nil && !errors.As(failure, new(*OverrunError)) { // which has been told
			s.lease.emit(Event{Kind: EventWorkFailed, Token: s.lease.lastToken(), Err: failure})
		}
		switch {
		case end.overrun != nil:
			return end, end.overrun
		case end.panicked != nil:
			return end, nil
		case ctx.Err() != nil:
			return end, failure
		case failure != nil:
			if time.Since(began) > s.lease.cfg.TTL {
				failures = 0
			}
			failures++
			pause := s.failurePause(failures)
			if resigned {
				pause = max(pause, s.lease.cfg.TTL)
			}
			s.sitOut(ctx, pause)
		case end.own: // also if it turned out afterwards that the lease was lost
			return end, nil
		case resigned:
			s.sitOut(ctx, s.lease.cfg.TTL)
		}
	}
	return termEnd{}, nil
}

// workError is the error of a scheduler that failed, as opposed to one that only
// tells that it was told to stop.
func workError(end termEnd) error {
	if !end.own && (errors.Is(end.err, context.Canceled) || errors.Is(end.err, context.DeadlineExceeded) ||
		errors.Is(end.err, ErrLost) || errors.Is(end.err, errResigned)) {
		return nil
	}
	return end.err
}

// term runs the scheduler for one term.
func (s *Supervisor) term(ctx context.Context) (end termEnd, resigned bool) {
	resign, ended := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.state, s.resign, s.ended = Leading, resign, ended
	s.terms++
	s.mu.Unlock()
	end = s.lease.hold(ctx, resign, s.scheduler.Run)
	s.mu.Lock()
	resigned = s.resign == nil
	s.state, s.resign, s.ended = Standby, nil, nil
	s.mu.Unlock()
	close(ended)
	return end, resigned
}

// failurePause is how long a replica whose scheduler has failed n times in a row
// leaves the lease to others: from a sixteenth of a TTL up to a TTL.
func (s *Supervisor) failurePause(n int) time.Duration {
	d := s.lease.cfg.TTL >> max(0, 5-n)
	return d - spread(d)
}

// sitOut leaves the lease to others for d.
func (s *Supervisor) sitOut(ctx context.Context, d time.Duration) {
	s.setState(Paused)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (s *Supervisor) setState(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// Resign hands the lease to another replica, as for a deployment: it stops the
// scheduler, releases the lease when it has stopped, and lets Run ask for the
// lease again only after a TTL, so that another can have it. It blocks until the
// term has ended, or until ctx ends: then the error is that of ctx, and the term
// still ends. It returns nil at once if this replica does not lead. It must not be
// called and waited for in the supervised work itself, which would wait for its
// own end.
func (s *Supervisor) Resign(ctx context.Context) error {
	s.mu.Lock()
	resign, ended := s.resign, s.ended
	s.resign = nil
	s.mu.Unlock()
	if resign != nil {
		close(resign)
	}
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("joblease: resigning lease %q: %w", s.lease.name, context.Cause(ctx))
	}
}

// Gate wraps a job of a scheduler that knows nothing of leases: the returned
// function runs job only if this replica leads and the lease is trusted at that
// instant, and does nothing otherwise. It looks at the clocks itself, so that an
// overdue timer in a process that was frozen, or a machine that was suspended,
// starts nothing.
//
// A job that has begun may finish: at a shutdown the lease is renewed, and
// released only after job has returned. ctx ends when the lease is lost, or
// StopTimeout after the shutdown, and carries the grant for a fence.
//
// With robfig/cron: c.AddFunc("@hourly", sup.Gate(job)). Gate panics if job is nil,
// at once and not when the job is due.
func (s *Supervisor) Gate(job func(ctx context.Context)) func() {
	if job == nil {
		panic("joblease: Gate: the job must not be nil")
	}
	return func() {
		s.lease.mu.Lock()
		t := s.lease.work
		s.lease.mu.Unlock()
		if t == nil || !t.enter() {
			return
		}
		defer t.jobs.Done()
		job(t.jobCtx)
	}
}
