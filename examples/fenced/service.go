package main

import (
	"context"
	"errors"
	"time"

	"github.com/joblease/joblease"
)

// books is the service's database, and the leases in it.
type books interface {
	leases() joblease.Store
	create(ctx context.Context) error
	// book books the payment. If g does not hold the lease any more nothing is
	// written and the error is joblease.ErrLost.
	book(ctx context.Context, g joblease.Grant, by string) error
	// booked returns who has booked it.
	booked(ctx context.Context) (by []string, err error)
	close()
}

// What a replica says.
const (
	pays    = "holds the lease, works out the payment"
	booked  = "has booked it"
	refused = "is refused by the fence: lease lost"
)

type service struct {
	books books
	name  string
	say   func(what string)
}

// run books the payment, on whichever replica gets the lease, and returns.
func (s *service) run(ctx context.Context, cfg joblease.Config) error {
	lease, err := joblease.New(s.books.leases(), "payroll", cfg)
	if err != nil {
		return err
	}
	err = lease.Do(ctx, s.pay)
	if errors.Is(err, joblease.ErrLost) {
		return nil // another replica does it, or has
	}
	return err
}

func (s *service) pay(ctx context.Context) error {
	grant, _ := joblease.GrantFrom(ctx)
	if by, err := s.books.booked(ctx); err != nil || len(by) > 0 {
		return err
	}
	s.say(pays)
	time.Sleep(time.Second)
	// Here a service would look at ctx, and so would the database driver. This one
	// does not, since a process can be frozen after it has looked: between the look
	// and the commit nothing but the fence helps.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.books.book(ctx, grant, s.name)
	switch {
	case err == nil:
		s.say(booked)
	case errors.Is(err, joblease.ErrLost):
		s.say(refused)
	}
	return err
}
