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
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/joblease/joblease/examples/internal/database"
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

	// SIGHUP: the terminal was closed. SIGPIPE: whoever read the output has gone.
	// There is something to clean up then, too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // a second ctrl-C ends the program at once
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
	// A table of its own, which can be dropped afterwards, and which another
	// quickstart on the same database does not share.
	o.table = "joblease_quickstart_" + rand.Text()[:8]
	var where string
	if o.database == "" {
		dir, err := os.MkdirTemp("", "joblease-quickstart-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder that the system clears
		o.database, where = filepath.Join(dir, "app.db"), "a SQLite file"
	} else if cfg, err := pgx.ParseConfig(o.database); err != nil {
		return err // which says what is wrong with the URL, without the password
	} else {
		where = "PostgreSQL at " + cfg.Host
		defer func() { err = errors.Join(err, dropTable(o)) }()
	}
	// A database that cannot be reached is told once, not by each replica.
	_, done, err := database.Open(ctx, o.database, o.table)
	if err != nil {
		return err
	}
	done()

	s := newShow(o)
	s.title(where)
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

// dropTable removes what was made in a database that is not the program's own.
func dropTable(o options) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, o.database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing hangs on it
	_, err = conn.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{o.table}.Sanitize())
	return err
}
