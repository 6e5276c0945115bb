// Ticker is a loop that does something every second, of which any number of
// replicas may run: one of them does it. Try it in two terminals:
//
//	go run ./examples/ticker
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/examples/internal/database"
)

func main() {
	where := flag.String("database", "ticker.db", "`path` of a SQLite file or URL of a PostgreSQL database")
	every := flag.Duration("every", time.Second, "time from one sweep to the next")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *where, *every); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, where string, every time.Duration) error {
	store, done, err := database.Open(ctx, where, "")
	if err != nil {
		return err
	}
	defer done()
	// Where there was: for range time.Tick(every) { sweep(ctx) }
	sup, err := joblease.NewSupervisor(store, "sweep", joblease.Every(every, sweep), joblease.Config{TTL: 5 * time.Second})
	if err != nil {
		return err
	}
	return sup.Run(ctx)
}

// sweep returns an error only if another replica should try instead.
func sweep(ctx context.Context) error {
	grant, _ := joblease.GrantFrom(ctx)
	slog.Info("sweeping", "replica", grant.Holder, "token", grant.Token)
	return nil
}
