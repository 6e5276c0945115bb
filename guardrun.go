package joblease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Job is one job of [Guard.Run].
type Job struct {
	// Name of the job, and of its lease. See [CheckName].
	Name string
	// Schedule says when the job is due. It is asked in UTC: for a schedule that
	// goes by local time, name the zone in its spec or use [In].
	Schedule Schedule
	// Run does the work of one tick. The context carries the grant
	// ([GrantFrom]), which names the tick. It ends when the lease is lost, with a
	// *[LostError] as its cause, but not when Guard.Run is to end: a run that has
	// begun may finish, for up to StopTimeout. An error is told to the log and the
	// observer, and changes nothing else.
	Run func(ctx context.Context) error
	// Missed is how many ticks that nobody has run in time are run late: the
	// newest Missed of them, oldest first. 1 makes up for a time without
	// replicas, or for a long run, with one run; the most is [MaxMissed].
	//
	// With 0, the default, a tick that came while no replica was waiting for it is
	// never run: all were down, or busy with an earlier run. A tick that was
	// waited for, and could not be claimed because the store failed or a dead
	// replica's lease had to expire, is run up to two TTLs late, if the next one
	// has not come.
	//
	// A job that has never run anywhere has missed nothing.
	Missed int
	// Again runs a tick once more if its run was interrupted: the replica died,
	// or its context ended before it returned nil. A replica takes it over as it
	// does any lease. It is only ever the last tick: one after which
	// another has been claimed is history. With false, the default, an interrupted
	// tick is dropped. Run must bear being run again from the start.
	//
	// With Again the replicas that lost a tick watch its run, with about one
	// statement a TTL, and one at its end.
	Again bool
}

// MaxMissed is the most that [Job.Missed] can be.
const MaxMissed = 1000

func (j Job) check(now time.Time) error {
	if err := CheckName(j.Name); err != nil {
		return err
	}
	err := checkSchedule(j.Schedule, now.UTC())
	switch {
	case err != nil:
	case j.Run == nil:
		err = &ConfigError{"Run", nil, "must not be nil"}
	case j.Missed < 0 || j.Missed > MaxMissed:
		err = &ConfigError{"Missed", j.Missed, fmt.Sprintf("must be from 0 to %d", MaxMissed)}
	default:
		return nil
	}
	return fmt.Errorf("job %q: %w", j.Name, err)
}

// Run runs the jobs on their schedules, together with every other replica that
// runs jobs of these names, until ctx ends. Which tick is due is judged by the
// database's clock alone; this replica's own may show anything. It goes on through
// every error of the store and of a job. It blocks until all that it started has
// ended.
//
// When ctx ends, nothing new is begun. The runs under way may finish: Run renews
// their leases until they have, releases them, and returns nil. After StopTimeout
// it ends the context of a run, leaves its lease to expire, and returns an
// *[OverrunError].
//
// If the run of a job panics, its lease is released, the other jobs end as when ctx
// does, and the panic goes on with a *[PanicError].
//
// No jobs, a job that cannot work, two of the same name, or one that another Run
// of this guard has, are reported before anything starts. The error is, or wraps,
// a *[ConfigError].
func (g *Guard) Run(ctx context.Context, jobs ...Job) error {
	loops, err := g.admit(jobs)
	if err != nil {
		return err
	}
	defer g.events.flush(g.cfg.CallTimeout)
	defer g.dismiss(loops)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ends := make([]termEnd, len(loops))
	var running sync.WaitGroup
	for i, j := range loops {
		running.Go(func() {
			ends[i] = j.run(ctx)
			if ends[i].panicked != nil {
				stop(fmt.Errorf("joblease: job %q has panicked: %w", j.job.Name, context.Canceled))
			}
		})
	}
	running.Wait()
	var errs []error
	for i, end := range ends {
		if end.panicked != nil {
			panic(end.panicked)
		}
		if end.overrun != nil {
			errs = append(errs, fmt.Errorf("job %q: %w", loops[i].job.Name, end.overrun))
		}
	}
	return errors.Join(errs...)
}

// admit checks the jobs and notes that they run.
func (g *Guard) admit(jobs []Job) ([]*jobLoop, error) {
	if len(jobs) == 0 {
		return nil, &ConfigError{"jobs", jobs, "must not be empty"}
	}
	loops, names := make([]*jobLoop, len(jobs)), map[string]bool{}
	for i, job := range jobs {
		if err := job.check(g.wall()); err != nil {
			return nil, err
		}
		if names[job.Name] {
			return nil, &ConfigError{"Name", job.Name, "must be that of one job only: its row keeps the last tick"}
		}
		names[job.Name] = true
		l, err := g.lease(job.Name)
		if err != nil {
			return nil, err
		}
		loops[i] = &jobLoop{job: job, lease: l}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range names {
		if g.looping[name] {
			return nil, &ConfigError{"Name", name, "is that of a job that this guard runs already"}
		}
	}
	for name := range names {
		g.looping[name] = true
	}
	return loops, nil
}

func (g *Guard) dismiss(loops []*jobLoop) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range loops {
		delete(g.looping, j.job.Name)
	}
}
