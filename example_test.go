package joblease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
)

// A service would use pgstore.New or sqlstore.NewSQLite.
var store joblease.Store = storetest.NewMemory()

var silent = joblease.Config{Logger: slog.New(slog.DiscardHandler)}

func ExampleSupervisor() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sup, err := joblease.NewSupervisor(store, "reports", joblease.Every(10*time.Millisecond, func(ctx context.Context) error {
		grant, _ := joblease.GrantFrom(ctx)
		fmt.Println("working in term", grant.Token)
		cancel() // as a signal would
		return nil
	}), silent)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sup.Run(ctx))
	// Output:
	// working in term 1
	// <nil>
}

func ExampleLease_Do() {
	lease, err := joblease.New(store, "import", silent)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = lease.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("nobody else does this now:", joblease.Held(ctx))
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else does this now: true
	// <nil>
}

func ExampleLease_TryAcquire() {
	a, _ := joblease.New(store, "backup", silent) // the name is valid, so is the zero Config
	b, _ := joblease.New(store, "backup", silent)
	ctx := context.Background()

	_, err := a.TryAcquire(ctx)
	fmt.Println("a:", err)
	_, err = b.TryAcquire(ctx)
	fmt.Println("b is refused:", errors.Is(err, joblease.ErrHeld))
	fmt.Println("a releases:", a.Release(ctx))
	grant, err := b.TryAcquire(ctx)
	fmt.Println("b:", grant.Token, err)
	// Output:
	// a: <nil>
	// b is refused: true
	// a releases: <nil>
	// b: 2 <nil>
}

func ExampleSupervisor_Gate() {
	sup, err := joblease.NewSupervisor(store, "mail", joblease.Idle(), silent)
	if err != nil {
		fmt.Println(err)
		return
	}
	job := sup.Gate(func(context.Context) { fmt.Println("sending") })
	job() // this replica does not lead: nothing happens
	fmt.Println(sup.Status().State)
	// Output: stopped
}
