// Cron is a service on PostgreSQL with robfig/cron in its main, of which any
// number of replicas may run: its jobs run on one of them at a time. DATABASE_URL
// or the flag -database says where.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/pgstore"
	"github.com/robfig/cron/v3"
)

func main() {
	url := flag.String("database", os.Getenv("DATABASE_URL"), "`URL` of the PostgreSQL database")
	addr := flag.String("addr", "localhost:8080", "`address` to serve on")
	schedule := flag.String("schedule", "@hourly", "when the report is due")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *addr, *schedule); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, addr, schedule string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgstore.New(pool, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	c := cron.New(cron.WithLocation(time.UTC))
	sup, err := joblease.NewSupervisor(store, "reports", joblease.Cron(c), joblease.Config{})
	if err != nil {
		return err
	}
	if _, err := c.AddFunc(schedule, sup.Gate(func(ctx context.Context) { report(ctx, pool) })); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	http.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(sup.Status()) //nolint:errcheck // the client may have gone
	})
	server := &http.Server{}
	go server.Serve(listener) //nolint:errcheck // it returns when it is shut down
	log.Print("serving on ", listener.Addr())
	err = sup.Run(ctx) // until SIGTERM, and then until the jobs have stopped and the lease is free
	down, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(down))
}

func report(ctx context.Context, pool *pgxpool.Pool) {
	var size string
	err := pool.QueryRow(ctx, "SELECT pg_size_pretty(pg_database_size(current_database()))").Scan(&size)
	log.Printf("report: the database has %s (error: %v)", size, err)
}
