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

// news is what one replica has reported.
type news struct {
	replica int // from 0
	report
}

// read gets the next news of a replica.
func read(replica int, in *json.Decoder) (news, error) {
	n := news{replica: replica}
	err := in.Decode(&n.report)
	return n, err
}

// kind says what a replica reports.
type kind string

const (
	leads    kind = "leads"    // its term has begun
	released kind = "released" // its term is over and the lease free
	lost     kind = "lost"     // its term is over without a release
	begins   kind = "begins"   // a run
	ends     kind = "ends"     // a run
)

// report is one line that a replica writes to its standard output. The processes
// share a machine, so their wall clocks are one.
type report struct {
	Kind kind      `json:"kind"`
	At   time.Time `json:"at"`
	Due  time.Time `json:"due,omitzero"` // of the run's tick
}

// runTime is how long the job takes. It is shorter than the Margin of a lease of
// 3 s, so the job may finish whatever happens to the lease. Longer work goes by
// the context that it is given, and ends when that does.
const runTime = 200 * time.Millisecond

// replica is the service as one process.
type replica struct {
	database, table, lease string
	ttl                    time.Duration
	verbose                bool

	news *fleet.Reporter
}

// run serves until ctx ends, or until the process that started this one is gone.
func (r *replica) run(ctx context.Context) error {
	ctx, r.news = fleet.Join(ctx)
	level := slog.LevelWarn
	if r.verbose {
		level = slog.LevelInfo
	}
	store, done, err := database.Open(ctx, r.database, r.table)
	if err != nil {
		return err
	}
	defer done()
	return serve(ctx, store, r.lease, joblease.Config{
		TTL:         r.ttl,
		StopTimeout: 5 * time.Second,
		Observe:     r.observe,
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}, r.job)
}

// job is the work of the service.
func (r *replica) job(_ context.Context, due time.Time) {
	r.news.Report(report{Kind: begins, At: time.Now(), Due: due})
	time.Sleep(runTime)
	r.news.Report(report{Kind: ends, At: time.Now(), Due: due})
}

func (r *replica) observe(e joblease.Event) {
	if k, ok := map[joblease.EventKind]kind{
		joblease.EventAcquired: leads,
		joblease.EventReleased: released,
		joblease.EventLost:     lost,
	}[e.Kind]; ok {
		r.news.Report(report{Kind: k, At: e.Time})
	}
}
