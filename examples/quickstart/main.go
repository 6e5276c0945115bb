// Quickstart shows a job lease at work: three replicas of one service, each a
// process of its own, with a cron job that is due every second.
//
//	go run ./examples/quickstart
//
// It kills the replica that leads, as a crash would, and then tells the next one
// to stop, as a deployment does. At the end it accounts for every tick: run once,
// run twice, or missed. It takes about 15 seconds and leaves nothing behind. The
// exit status is 1 if a tick ran twice, or if nobody took over.
//
// What a service has to write is in service.go; the rest is the show.
//
//	-database postgres://…   PostgreSQL instead of a SQLite file
//	-unguarded               the same without a common lease, to see the difference
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/joblease/joblease/examples/internal/database"
	"github.com/joblease/joblease/examples/internal/fleet"
)

const (
	replicas = 3
	// every is the time from one tick of the cron to the next.
	every = time.Second
	// runsEach is how many runs of each leader the show lasts.
	runsEach = 3
)

// options are what the flags say.
type options struct {
	database  string
	ttl       time.Duration
	unguarded bool
	verbose   bool

	// For the replicas.
	replica      int
	table, lease string
}

func main() {
	var o options
	flag.StringVar(&o.database, "database", "", "`URL` of a PostgreSQL database (default a SQLite file in a temporary folder)")
	flag.DurationVar(&o.ttl, "ttl", 3*time.Second, "TTL of the lease")
	flag.BoolVar(&o.unguarded, "unguarded", false, "give each replica a lease of its own, to see what the common one is for")
	flag.BoolVar(&o.verbose, "v", false, "show the log of the replicas")
	flag.IntVar(&o.replica, "replica", 0, "be the replica with this number; for the program's own use, as are the flags table and lease")
	flag.StringVar(&o.table, "table", "", "table that the lease is in")
	flag.StringVar(&o.lease, "lease", "", "name of the lease")
	flag.Parse()

	ctx, stop := fleet.Signals()
	defer stop()
	if err := quickstart(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func quickstart(ctx context.Context, o options) (err error) {
	if o.replica > 0 {
		r := &replica{database: o.database, table: o.table, lease: o.lease, ttl: o.ttl, verbose: o.verbose}
		if err := r.run(ctx); err != nil {
			return fmt.Errorf("replica %d: %w", o.replica, err)
		}
		return nil
	}
	place, err := database.NewScratch(ctx, o.database, "quickstart")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Remove()) }()
	o.database, o.table = place.URL, place.Table

	s := newShow(o)
	s.title(place.Name)
	sum, err := s.play(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted; the replicas have been stopped")
	}
	s.summary(sum)
	switch {
	case err != nil:
		return err
	case o.unguarded && len(sum.doubled) > 0:
		return errors.New("ticks ran twice, as they do without a common lease")
	case !o.unguarded && !sum.ok():
		return errors.New("not all went as promised")
	}
	return nil
}
