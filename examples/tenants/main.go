// Tenants is a service that does something for each of its tenants, on one
// replica at a time and each tenant by itself. Tenants come and go while it runs.
//
//	go run ./examples/tenants
//
// What a service needs is in manager.go. This file is a demonstration that plays
// by itself and ends: two replicas in one process, each as it would be in a
// process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/examples/internal/database"
)

func main() {
	where := flag.String("database", "", "`URL` of a PostgreSQL database (default a SQLite file in a temporary folder)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A step that has not come to its end after much longer than all of them take
	// does not come to it.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx, *where); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, where string) error {
	if where == "" {
		dir, err := os.MkdirTemp("", "joblease-tenants-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder that the system clears
		where = filepath.Join(dir, "app.db")
	}
	d := &demo{database: where, board: newBoard()}
	err := d.play(ctx)
	err = errors.Join(err, d.a.end(), d.b.end())
	fmt.Printf("\n%d pieces of work done\n", d.works.Load())
	return err
}

// demo is two replicas and what they have done.
type demo struct {
	database string
	board    *board
	a, b     *replica
	works    atomic.Int64
}

// play goes through the demonstration, step by step.
func (d *demo) play(ctx context.Context) error {
	tenants := []string{"acme", "birch", "cedar", "dune", "elm", "fern"}
	for _, step := range []struct {
		title string
		do    func() error
		until func(led map[string]int, total int) bool // how many tenants each replica leads
	}{
		{"A and B start, with six tenants", func() (err error) {
			if d.a, err = d.start(ctx, "A"); err != nil {
				return err
			}
			if d.b, err = d.start(ctx, "B"); err != nil {
				return err
			}
			return errors.Join(d.a.add(tenants...), d.b.add(tenants...))
		}, func(_ map[string]int, total int) bool { return total == 6 }},

		{"gale is added while they run", func() error {
			tenants = append(tenants, "gale")
			return errors.Join(d.a.add("gale"), d.b.add("gale"))
		}, func(_ map[string]int, total int) bool { return total == 7 }},

		{"acme is removed", func() error {
			tenants = tenants[1:]
			return errors.Join(d.a.manager.Remove("acme"), d.b.manager.Remove("acme"))
		}, func(_ map[string]int, total int) bool { return total == 6 }},

		{"A ends", func() error { return d.a.end() },
			func(led map[string]int, _ int) bool { return led["B"] == 6 }},

		{"A is back, and B keeps three", func() (err error) {
			if d.a, err = d.start(ctx, "A"); err != nil {
				return err
			}
			return errors.Join(d.a.add(tenants...), d.b.manager.Shed(ctx, 3))
		}, func(led map[string]int, _ int) bool { return led["A"] == 3 && led["B"] == 3 }},
	} {
		d.board.title(step.title)
		if err := step.do(); err != nil {
			return err
		}
		if err := d.board.await(ctx, step.until); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	d.board.title("both end")
	return nil
}

// replica is the service as one process.
type replica struct {
	manager *Manager
	close   func()
}

func (d *demo) start(ctx context.Context, name string) (*replica, error) {
	store, done, err := database.Open(ctx, d.database, "")
	if err != nil {
		return nil, err
	}
	cfg := joblease.Config{TTL: 3 * time.Second, Observe: d.board.observe, Logger: slog.New(slog.DiscardHandler)}
	work := func(string) joblease.Scheduler {
		return joblease.Every(100*time.Millisecond, func(context.Context) error {
			d.works.Add(1)
			return nil
		})
	}
	return &replica{manager: NewManager(store, name, cfg, work), close: done}, nil
}

func (r *replica) add(tenants ...string) error {
	var errs []error
	for _, name := range tenants {
		errs = append(errs, r.manager.Add(name))
	}
	return errors.Join(errs...)
}

// end ends the replica. Ending it again, or one that never was, does nothing.
func (r *replica) end() error {
	if r == nil || r.close == nil {
		return nil
	}
	err := r.manager.Close() // before the store: a release needs it
	r.close()
	r.close = nil
	return err
}
