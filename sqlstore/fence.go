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
// ctx allows. Call it before tx reads anything, or let tx begin as a writer (BEGIN
// IMMEDIATE; _txlock=immediate in the DSN of most drivers): a transaction that
// has read cannot write any more once somebody else has, and Fence returns
// SQLite's SQLITE_BUSY_SNAPSHOT at once.
func (s *SQLite) Fence(ctx context.Context, tx *sql.Tx, g joblease.Grant) error {
	n, err := s.fence(ctx, tx, g)
	if err == nil && n == 0 {
		return lost(g)
	}
	return failed("fence", g.Name, err)
}

func (s *SQLite) fence(ctx context.Context, tx *sql.Tx, g joblease.Grant) (matched int64, err error) {
	restore, err := impatient(ctx, tx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	for try := 0; ; try++ {
		res, err := tx.ExecContext(ctx, s.query["fence"], sql.Named("name", g.Name), sql.Named("claim", g.Claim[:]))
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
