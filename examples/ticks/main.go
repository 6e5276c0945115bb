// Ticks shows jobs without a leader: three replicas of one service, each a process
// of its own with a cron of its own, and each tick runs on exactly one of them.
//
//	go run ./examples/ticks
//
// It kills a replica in the middle of a run, whose tick is dropped, and another in
// the middle of the run of a job that is to run again, whose tick another replica
// does. It takes about 15 seconds and leaves nothing behind. The exit status is 1
// if a tick ran twice, or if one is missing that had to run.
//
// What a service has to write is in service.go; the rest is the show.
//
//	-database postgres://…   PostgreSQL instead of a SQLite file
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/joblease/joblease/examples/internal/board"
	"github.com/joblease/joblease/examples/internal/database"
	"github.com/joblease/joblease/examples/internal/fleet"
)

const (
	replicas = 3
	ttl      = 1500 * time.Millisecond
)

// options are what the flags say.
type options struct {
	database string
	table    string // for the replicas
}

func main() {
	var o options
	flag.StringVar(&o.database, "database", "", "`URL` of a PostgreSQL database (default a SQLite file in a temporary folder)")
	number := flag.Int("replica", 0, "be the replica with this number; for the program's own use, as is the flag table")
	flag.StringVar(&o.table, "table", "", "table that the leases are in")
	flag.Parse()
	ctx, stop := fleet.Signals()
	defer stop()
	var err error
	if *number > 0 {
		err = replica(ctx, o)
	} else {
		err = ticks(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ticks:", err)
		os.Exit(1)
	}
}

func ticks(ctx context.Context, o options) (err error) {
	place, err := database.NewScratch(ctx, o.database, "ticks")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Remove()) }()
	s := &show{Board: board.New(), account: account{killed: map[int]bool{}}}
	fmt.Printf("%d replicas, each with a cron; sweep is due every second, bill every other one; in %s\n\n", replicas, place.Name)
	s.Head("tick", replicas, column)
	err = s.play(ctx, options{place.URL, place.Table})
	if ctx.Err() != nil {
		return errors.New("interrupted; the replicas have been stopped")
	}
	sum := s.account.summarize()
	s.summary(sum)
	switch {
	case err != nil:
		return err
	case sum.doubled > 0 || sum.missed["bill"] > 0 || sum.again == 0:
		return errors.New("not all went as promised")
	}
	return nil
}
