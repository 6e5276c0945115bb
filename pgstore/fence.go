package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/joblease/joblease"
)

// Fence makes sure that tx can only commit what was done under the lease. It
// returns nil if g's claim has the lease, and from then until tx ends nobody can
// take it over: rivals are refused, at once and without waiting. Renewals by the
// holder pass. So everything that tx writes is ordered before the next change of
// hands.
//
// Call it as the first statement of tx, which is on the database of the store
// but not on a connection of the store. It waits only if the lease is being
// taken over at this instant; ctx bounds the wait.
//
// If the claim has the lease no more the error is [joblease.ErrLost], and tx
// must be rolled back. On any other error nothing is known, and tx must be
// rolled back too.
//
// In READ COMMITTED, the default, the row is read as it stands. In REPEATABLE
// READ and SERIALIZABLE it is read as of the first statement of tx. If that was
// an earlier one than Fence, and the lease has changed hands since, the error is
// the server's serialization failure, 40001, and [joblease.ErrLost] comes when
// the transaction is tried again. If it was only released since, Fence can
// succeed, and keeps others from taking it until tx ends.
//
// A transaction that stays open keeps the lease from being taken over even when
// its holder is dead: let idle_in_transaction_session_timeout bound it.
func (s *Store) Fence(ctx context.Context, tx pgx.Tx, g joblease.Grant) error {
	tag, err := tx.Exec(ctx, s.sql.fence, pgx.QueryExecModeExec, g.Name, g.Claim.String())
	if err != nil {
		return s.explain(command{op: "fence", name: g.Name}, err)
	}
	if tag.RowsAffected() == 0 {
		return lost(g)
	}
	return nil
}

// Done marks the tick of g as finished as part of tx, so that what tx writes and
// the mark are committed together: the effects of the tick happen exactly once,
// whatever becomes of the holder after the commit. A claim with Again is then
// refused, and a holder that was replaced before cannot commit.
//
// It is a fence as well: it returns nil if g's claim has the lease, and from then
// until tx ends nobody can take it over. A release that follows need not say that
// the run has finished. Calling it again in tx or later does nothing more.
//
// Call it last in tx, and commit at once. Unlike [Store.Fence] it writes the row,
// so that renewals and the release wait until tx ends, and a tx that stays open
// for longer than the TTL less its Margin ends the term. If tx is long, begin it
// with Fence. Done waits for a renewal or a release that is under way; ctx bounds
// the wait.
//
// If the claim has the lease no more the error is [joblease.ErrLost], and tx must
// be rolled back. A grant without a tick is an error too, neither
// [joblease.ErrHeld] nor [joblease.ErrLost]. On any other error nothing is known,
// and tx must be rolled back too.
//
// In REPEATABLE READ and SERIALIZABLE the error is the server's serialization
// failure, 40001, if the row has been written since the first statement of tx,
// by a renewal for one. There, try tx again, or let Done be its first statement
// and keep tx short.
func (s *Store) Done(ctx context.Context, tx pgx.Tx, g joblease.Grant) error {
	if g.Tick.IsZero() {
		return fmt.Errorf("joblease: done %q: the grant has no tick, so there is nothing to be done; "+
			"Fence is for leases without ticks", g.Name)
	}
	tag, err := tx.Exec(ctx, s.sql.done, pgx.QueryExecModeExec, g.Name, g.Claim.String(), string(instant(g.Tick)))
	if err != nil {
		return s.explain(command{op: "done", name: g.Name}, err)
	}
	if tag.RowsAffected() == 0 {
		return lost(g)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
