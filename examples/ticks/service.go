package main

import (
	"context"
	"time"

	"github.com/joblease/joblease"
	"github.com/robfig/cron/v3"
)

// serve runs the jobs of the service until ctx ends. Every replica does the same,
// with a cron of its own; there is no leader, and each tick runs on the replica
// that is the first to claim it. This is all that a service has to write.
func serve(ctx context.Context, store joblease.Store, cfg joblease.Config, sweep, bill func(context.Context) error) error {
	guard, err := joblease.NewGuard(store, cfg)
	if err != nil {
		return err
	}
	// A job of the cron that the service has. When a replica dies in the middle of
	// a run, the tick is dropped, and those that come until its lease has expired.
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse("* * * * * *")
	if err != nil {
		return err
	}
	guarded, err := guard.Wrap(ctx, "sweep", schedule, sweep)
	if err != nil {
		return err
	}
	c := cron.New()
	c.Schedule(schedule, cron.FuncJob(guarded))
	c.Start()
	// A job that the guard runs itself, since it can do more: another replica runs
	// an interrupted tick again, and those that were missed meanwhile late.
	err = guard.Run(ctx, joblease.Job{
		Name: "bill", Schedule: joblease.Interval(billEvery, 0), Run: bill, Again: true, Missed: 10,
	})
	<-c.Stop().Done() // until the sweep under way has finished
	return err
}

const (
	sweepEvery = time.Second // as in the spec
	billEvery  = 2 * time.Second
)
