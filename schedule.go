package joblease

import (
	"context"
	"fmt"
	"time"
)

// Scheduler is what runs under a supervised lease, once per term.
//
// Run starts it, blocks, and returns only when nothing that it started still
// runs. ctx is the term: when it ends, Run stops what it started. ctx carries the
// grant ([GrantFrom]), and its cause is a *[LostError] if the lease was lost. Run
// is called again for the next term, never while an earlier call is under way, so
// what must be registered once is registered before, not in Run.
//
// Returning nil before ctx has ended means that the work is finished for good,
// returning an error that this replica cannot do it now; see [Supervisor.Run]. A
// Scheduler that could not stop what it started returns an *[OverrunError].
type Scheduler interface {
	Run(ctx context.Context) error
}

// scheduler is a Scheduler of this package, with what is wrong with its arguments.
type scheduler struct {
	run     func(context.Context) error
	invalid *ConfigError
}

func (s scheduler) Run(ctx context.Context) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.run(ctx)
}

// Func makes a Scheduler of a function.
func Func(run func(ctx context.Context) error) Scheduler {
	if run == nil {
		return scheduler{invalid: &ConfigError{"Func", nil, "the function must not be nil"}}
	}
	return scheduler{run: run}
}

// Idle is a Scheduler that does nothing for as long as the term lasts: for a
// service that only asks [Supervisor.IsLeader], or lets jobs of a scheduler that
// runs on every replica through [Supervisor.Gate].
func Idle() Scheduler {
	return Func(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// Cron makes a Scheduler of a *cron.Cron of github.com/robfig/cron, as it is. Its
// jobs are added once, before the Supervisor runs; each term starts and stops it,
// and a stop waits for the jobs that run.
//
// A timer of cron that is overdue in a process that was frozen can start a job
// before anybody else gets to run, so jobs that must not do that are wrapped with
// [Supervisor.Gate].
//
// Inside a job, c.Entry(id).Prev is the instant for which it was scheduled.
func Cron(c interface {
	Start()
	Stop() context.Context
}) Scheduler {
	if isNil(c) {
		return scheduler{invalid: &ConfigError{"Cron", nil, "the cron must not be nil"}}
	}
	return Func(func(ctx context.Context) error {
		c.Start()
		<-ctx.Done()
		<-c.Stop().Done()
		return nil
	})
}

// PerTerm makes a Scheduler of one that lasts a single term: create makes it, with
// its jobs, when a term begins, and it is started, and shut down at the term's
// end. So a gocron.Scheduler of github.com/go-co-op/gocron/v2 is supervised.
// gocron also has a StopJobs, but is not made to be started again after it: jobs
// that were due at the stop run after the next start.
//
// ctx is that of the term, as in [Scheduler]. An error of create is one of the
// scheduler; see [Supervisor.Run]. If Shutdown returns an error, jobs may still
// run and nobody can tell when they end: the lease is not released but left to
// expire. gocron gives up waiting for its jobs after the time set by
// gocron.WithStopTimeout, 10 s by default: set it longer than the longest job.
func PerTerm[S interface {
	Start()
	Shutdown() error
}](create func(ctx context.Context) (S, error)) Scheduler {
	if create == nil {
		return scheduler{invalid: &ConfigError{"PerTerm", nil, "the function must not be nil"}}
	}
	return Func(func(ctx context.Context) error {
		s, err := create(ctx)
		if err != nil {
			return fmt.Errorf("joblease: making the scheduler of the term: %w", err)
		}
		s.Start()
		<-ctx.Done()
		if err := s.Shutdown(); err != nil {
			return &OverrunError{Err: fmt.Errorf("stopping the scheduler: %w", err)}
		}
		return nil
	})
}

// Every makes a Scheduler that calls fn every d, like a loop around a
// [time.Ticker]: the first time one d after the term began, one call at a time,
// and dropping the ticks that a long call covers. While the lease is not trusted,
// as after a suspend, a call waits until a renewal has confirmed the lease.
//
// A call that has begun may finish: its ctx ends when the lease is lost, or
// StopTimeout after a shutdown, and the term lasts until it has returned.
//
// An error of fn ends the term, and another replica gets its chance; a fn that
// means to go on logs its error and returns nil. d must be positive.
func Every(d time.Duration, fn func(ctx context.Context) error) Scheduler {
	switch {
	case d <= 0:
		return scheduler{invalid: &ConfigError{"Every", d, "the interval must be positive"}}
	case fn == nil:
		return scheduler{invalid: &ConfigError{"Every", nil, "the function must not be nil"}}
	}
	return Func(func(ctx context.Context) error {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if !confirmed(ctx) {
				return nil
			}
			job := ctx
			if t := termFrom(ctx); t != nil {
				job = t.jobCtx
			}
			if err := fn(job); err != nil {
				return err
			}
		}
	})
}

// confirmed waits until the lease under which ctx runs is trusted, and reports
// false if ctx ends before. Without a lease it reports whether ctx goes on.
func confirmed(ctx context.Context) bool {
	t := termFrom(ctx)
	for t != nil && ctx.Err() == nil && !t.trusted() { // which has asked for a renewal
		again := time.NewTimer(t.lease.cfg.RenewEvery / 16)
		select {
		case <-ctx.Done():
			again.Stop()
			return false
		case <-again.C:
		}
	}
	return ctx.Err() == nil
}
