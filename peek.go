package joblease

import (
	"context"
	"errors"
	"time"
)

// This file is what a lease knows of the database's clock, and how it asks.

// clockKnown reports whether the database has shown its clock yet.
func (l *Lease) clockKnown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.clock.shown.IsZero()
}

// databaseNow is what the database's clock shows, as far as that can be known, and
// whether it is time to look again.
func (l *Lease) databaseNow() (now time.Time, stale bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	local := l.now()
	return l.clock.now(local), local.mono.Sub(l.clock.at.mono) >= lookEvery || local.ranAhead(l.clock.at) > l.cfg.Margin
}

// farFuture is a tick that never comes.
var farFuture = Tick{At: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}

// peek asks for a tick that never comes. The refusal tells the last tick and the
// database's clock, and nothing is written.
func (l *Lease) peek(ctx context.Context) (*TickError, error) {
	if err := l.lock(ctx); err != nil {
		return nil, err
	}
	defer l.unlock()
	sent := l.now()
	err := l.call(ctx, func(ctx context.Context) error {
		_, err := l.store.Acquire(ctx, Claim{
			Name: l.name, ID: NewClaimID(), Holder: l.cfg.Holder, TTL: l.cfg.TTL, Tick: farFuture,
		})
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	var row *TickError
	switch {
	case errors.As(err, &row):
		l.answered()
		l.clock.saw(row.Clock, sent, l.now())
		return row, nil
	case err == nil:
		err = errors.New("joblease: the store granted a tick of the year 9999")
	}
	l.failed(ctx, err)
	return nil, err
}
