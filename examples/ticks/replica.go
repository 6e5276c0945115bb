package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/examples/internal/database"
	"github.com/joblease/joblease/examples/internal/fleet"
)

// run is what a replica reports about a run: its begin, and its end unless it was
// cut short.
type run struct {
	Job string    `json:"job"`
	Due time.Time `json:"due"` // the tick
	At  time.Time `json:"at"`
	End bool      `json:"end"`
}

// news is what one replica has reported.
type news struct {
	replica int // from 0
	run
}

// read gets the next news of a replica.
func read(replica int, in *json.Decoder) (news, error) {
	n := news{replica: replica}
	err := in.Decode(&n.run)
	return n, err
}

// runTime is how long each job takes.
const runTime = 600 * time.Millisecond

// replica is the service as one process. It serves until ctx ends, or until the
// process that started this one is gone.
func replica(ctx context.Context, o options) error {
	ctx, out := fleet.Join(ctx)
	store, done, err := database.Open(ctx, o.database, o.table)
	if err != nil {
		return err
	}
	defer done()
	job := func(ctx context.Context) error {
		g, _ := joblease.GrantFrom(ctx)
		out.Report(run{Job: g.Name, Due: g.Tick, At: time.Now()})
		select {
		case <-time.After(runTime):
			out.Report(run{Job: g.Name, Due: g.Tick, At: time.Now(), End: true})
			return nil
		case <-ctx.Done(): // the lease is lost
			return context.Cause(ctx)
		}
	}
	return serve(ctx, store, joblease.Config{
		TTL:    ttl,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, job, job)
}
