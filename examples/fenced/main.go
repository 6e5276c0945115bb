// Fenced shows what a lease alone cannot stop, and what does: a payment run in
// two replicas, each a process of its own. The one that holds the lease is frozen
// (SIGSTOP) just before it books the payment, for longer than its TTL. The other
// one takes over and books it. Then the first goes on, as if nothing had happened,
// and the fence refuses its transaction.
//
//	go run ./examples/fenced
//
// It takes about 5 seconds and leaves nothing behind. The exit status is 1 unless
// the payment was booked exactly once.
//
// What a service has to write is in service.go, and in sqlite.go or postgres.go;
// the rest is the show.
//
//	-database postgres://…   PostgreSQL instead of a SQLite file
//	-unfenced                the same without the fence, to see the difference
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/examples/internal/board"
	"github.com/joblease/joblease/examples/internal/database"
	"github.com/joblease/joblease/examples/internal/fleet"
)

const ttl = 1500 * time.Millisecond

// options are what the flags say.
type options struct {
	database string
	unfenced bool
	table    string // for the replicas
}

// payments is the application's table, beside that of the leases.
func (o options) payments() string { return o.table + "_payment" }

// open opens the half of the service that knows the database.
func (o options) open(ctx context.Context) (books, error) {
	if database.IsPostgres(o.database) {
		return openPostgres(ctx, o)
	}
	return openSQLite(ctx, o)
}

func main() {
	var o options
	flag.StringVar(&o.database, "database", "", "`URL` of a PostgreSQL database (default a SQLite file in a temporary folder)")
	flag.BoolVar(&o.unfenced, "unfenced", false, "book without the fence, to see what it is for")
	number := flag.Int("replica", 0, "be the replica with this number; for the program's own use, as is the flag table")
	flag.StringVar(&o.table, "table", "", "table that the lease is in")
	flag.Parse()
	ctx, stop := fleet.Signals()
	defer stop()
	var err error
	if *number > 0 {
		err = replica(ctx, o, *number)
	} else {
		err = fenced(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fenced:", err)
		os.Exit(1)
	}
}

// news is what one replica has reported.
type news struct {
	replica int // from 0
	What    string
	At      time.Time
}

func read(replica int, in *json.Decoder) (news, error) {
	n := news{replica: replica}
	err := in.Decode(&n)
	return n, err
}

// replica is the service as one process.
func replica(ctx context.Context, o options, number int) error {
	ctx, out := fleet.Join(ctx)
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	s := &service{books: b, name: fmt.Sprintf("replica %d", number), say: func(what string) {
		out.Report(news{What: what, At: time.Now()})
	}}
	return s.run(ctx, joblease.Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
}

func fenced(ctx context.Context, o options) (err error) {
	place, err := database.NewScratch(ctx, o.database, "fenced")
	if err != nil {
		return err
	}
	o.database, o.table = place.URL, place.Table
	defer func() { err = errors.Join(err, place.Remove(o.payments())) }()
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.create(ctx); err != nil {
		return err
	}
	show := board.New()
	fmt.Printf("two replicas of a service, one payment to be booked, a lease of %v, in %s\n\n", ttl, place.Name)
	show.Head("", 2, column)
	err = play(ctx, show, o)
	if ctx.Err() != nil {
		return errors.New("interrupted; the replicas have been stopped")
	}
	if err != nil {
		return err
	}
	by, err := b.booked(ctx)
	if err != nil {
		return err
	}
	fmt.Println()
	show.Line("booked", len(by), board.Alarm(len(by)-1), fmt.Sprint("by ", by))
	if len(by) != 1 {
		return errors.New("the payment was not booked exactly once")
	}
	return nil
}

// column is the width of a replica's column.
const column = 40

// play is the plot.
func play(ctx context.Context, show *board.Board, o options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("what was waited for does not happen"))
	defer cancel()
	f, err := fleet.Launch(ctx, 2, func(int) []string {
		return []string{"-database", o.database, "-table", o.table, "-unfenced=" + strconv.FormatBool(o.unfenced)}
	}, read)
	frozen := -1
	row := func(replica int, text, colour string) {
		show.Row(time.Now(), time.Time{}, column*replica, text, colour)
	}
	for err == nil {
		select {
		case n, ok := <-f.News:
			if !ok { // both have ended
				return f.Wait()
			}
			row(n.replica, n.What, map[string]string{booked: board.Green, refused: board.Yellow}[n.What])
			switch {
			case n.What == pays && frozen < 0:
				frozen = n.replica
				row(frozen, "is frozen: SIGSTOP", board.Red)
				err = f.Freeze(frozen)
			case n.What == booked && n.replica != frozen:
				row(frozen, "goes on: SIGCONT", board.Red)
				err = f.Thaw(frozen)
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if frozen >= 0 {
		f.Thaw(frozen) //nolint:errcheck // it may have ended; if not, it has to hear that it is to stop
	}
	cancel()
	return errors.Join(err, f.Wait())
}
