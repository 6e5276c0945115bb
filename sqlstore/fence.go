package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/joblease/joblease"
)

// Fence makes the commit of tx depend on the lease: it returns nil if g holds
// the lease, and then nobody else gets it before tx has ended. What tx writes is
// so strictly ordered with every change of hands. An expired lease that nobody
// has taken over is still held.
//
// If g does not hold the lease the error is [joblease.ErrLost]. Any other error
// means that nothing is known. Roll tx back on every error: when ctx ends in the
// middle SQLite may have rolled it back already, and statements that follow
// would commit on their own.
//
// tx must be on the file that the leases are in, and what it writes too: an
// attached file commits at an instant of its own.
//
// From here on tx is the file's only writer, whatever it writes. Renewals wait
// for its end, those of the same lease too, so tx must be short against TTL.
//
// Fence waits for the end of another connection's write transaction, as long as
// ctx allows, whatever busy_timeout the connection has: that is
// set aside for each try and put back after it. Call it before tx reads anything, or let tx begin as a writer (BEGIN
// IMMEDIATE; _txlock=immediate in the DSN of most drivers): a transaction that
// has read cannot write any more once somebody else has, and Fence returns
// SQLite's SQLITE_BUSY_SNAPSHOT at once.
func (s *SQLite) Fence(ctx context.Context, tx *sql.Tx, g joblease.Grant) error {
	return s.guard(ctx, tx, "fence", g)
}

// Done marks the tick of g as finished as part of tx, so that what tx writes and
// the mark are committed together: the effects of the tick happen exactly once,
// whatever becomes of the holder after the commit. A claim with Again is then
// refused, and a holder that was replaced before cannot commit.
//
// It is a fence as well, and all that is said of [SQLite.Fence] is true of it: the
// errors, the rollback, and that every renewal in the file waits until tx ends.
// It may follow a Fence in tx, and then does not wait. A release that comes after
// the commit need not say that the run has finished. Calling it again in tx or
// later does nothing more.
//
// A grant without a tick is an error, neither [joblease.ErrHeld] nor
// [joblease.ErrLost].
func (s *SQLite) Done(ctx context.Context, tx *sql.Tx, g joblease.Grant) error {
	if g.Tick.IsZero() {
		return failed("done", g.Name, errors.New("the grant has no tick, so there is nothing to be done; "+
			"Fence is for leases without ticks"))
	}
	return s.guard(ctx, tx, "done", g, sql.Named("tick", stored(g.Tick)))
}

// guard runs a statement in tx that matches the row of g if g holds the lease.
func (s *SQLite) guard(ctx context.Context, tx *sql.Tx, verb string, g joblease.Grant, more ...any) error {
	args := append(more, sql.Named("name", g.Name), sql.Named("claim", g.Claim[:]))
	n, err := s.within(ctx, tx, s.query[verb], args)
	if err == nil && n == 0 {
		return lost(g)
	}
	return failed(verb, g.Name, err)
}

func (s *SQLite) within(ctx context.Context, tx *sql.Tx, query string, args []any) (matched int64, err error) {
	for try := 0; ; try++ {
		res, err := impatiently(ctx, tx, query, args)
		switch {
		case err == nil:
			return res.RowsAffected()
		case resultCode(err) == codeSnapshot:
			return 0, fmt.Errorf("the transaction read before it was fenced, and another has written since: %w", err)
		case !isLocked(err):
			return 0, s.explain(ctx, tx, err)
		}
		if ended := pause(ctx, try); ended != nil {
			return 0, fmt.Errorf("another connection locks the database: %w: %w", ended, err)
		}
	}
}

// impatiently runs one statement in tx that does not wait for locks. The
// caller's busy_timeout is put back before the pause between two tries, and not
// at the end of all: when the context of tx itself ends, tx is gone, and with it
// the way to put anything back.
func impatiently(ctx context.Context, tx *sql.Tx, query string, args []any) (sql.Result, error) {
	restore, err := impatient(ctx, tx)
	if err != nil {
		return nil, err
	}
	res, err := tx.ExecContext(ctx, query, args...)
	if failed := restore(); failed != nil {
		err = errors.Join(err, failed)
	}
	return res, err
}
