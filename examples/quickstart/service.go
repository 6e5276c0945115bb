package main

import (
	"context"
	"time"

	"github.com/joblease/joblease"
	"github.com/robfig/cron/v3"
)

// serve runs the service's cron until ctx ends, on whichever replica holds the
// lease. This is all that a service has to write; every replica runs the same.
func serve(ctx context.Context, store joblease.Store, lease string, cfg joblease.Config,
	job func(ctx context.Context, due time.Time),
) error {
	c := cron.New(cron.WithSeconds(), cron.WithLocation(time.UTC))
	// The supervisor starts c when this replica has the lease, and stops it when
	// the lease is lost or ctx ends.
	sup, err := joblease.NewSupervisor(store, lease, joblease.Cron(c), cfg)
	if err != nil {
		return err
	}
	// Jobs are added once, before Run. The gate looks at the lease once more when
	// a tick is due, for the replica that was frozen and wakes up late.
	var id cron.EntryID
	id, err = c.AddFunc("* * * * * *", sup.Gate(func(ctx context.Context) {
		job(ctx, c.Entry(id).Prev) // the instant that the schedule names, not the one at which the job began
	}))
	if err != nil {
		return err
	}
	// Run returns when the jobs have stopped and the lease is free for the next.
	return sup.Run(ctx)
}
