package pgstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

// eachIsolation runs a test in the isolation levels that PostgreSQL has.
func eachIsolation(t *testing.T, run func(t *testing.T, opts pgx.TxOptions)) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) { run(t, pgx.TxOptions{IsoLevel: level}) })
	}
}

// expire makes the lease a one that any candidate may take.
func expire(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, "UPDATE "+migrations.Table+" SET expires_at = clock_timestamp() - interval '1s'")
}

func TestNobodyTakesOverWhileAFencedTransactionIsOpen(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := acquired(t, s, "a", long)
		expire(t, db)
		tx := begin(t, db, opts)
		require.NoError(t, s.Fence(bounded(t), tx, g))

		h := held(t, s, "a")
		require.Equal(t, g.Claim, h.Claim)
		require.Negative(t, h.Remaining, "it has expired and may not be taken")
		require.NoError(t, s.Renew(bounded(t), g), "a renewal passes")
		require.NoError(t, s.Renew(bounded(t), g))
		require.NoError(t, tx.Commit(bounded(t)))

		expire(t, db)
		require.Equal(t, g.Token+1, acquired(t, s, "a", long).Token, "the transaction has ended")
	})
}

func TestAReleaseUnderAFencePassesAndTheNextTermWaitsForTheEnd(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	tx := begin(t, db, pgx.TxOptions{})
	require.NoError(t, s.Fence(bounded(t), tx, g))
	require.NoError(t, s.Release(bounded(t), g))
	require.True(t, held(t, s, "a").Claim.IsZero())
	require.NoError(t, tx.Rollback(bounded(t)))
	acquired(t, s, "a", long)
}

func TestAFenceAfterATakeoverIsLost(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := acquired(t, s, "a", long)
		expire(t, db)
		next := acquired(t, s, "a", long)

		require.ErrorIs(t, s.Fence(bounded(t), begin(t, db, opts), g), joblease.ErrLost)
		require.NoError(t, s.Fence(bounded(t), begin(t, db, opts), next))
		require.ErrorIs(t, s.Fence(bounded(t), begin(t, db, opts), joblease.Grant{Name: "b", Claim: next.Claim}), joblease.ErrLost)

		require.NoError(t, s.Release(bounded(t), next))
		require.ErrorIs(t, s.Fence(bounded(t), begin(t, db, opts), next), joblease.ErrLost)
	})
}

// The transaction has read before, and so sees the lease as it was then. It may
// fail in another way, but it must not succeed.
func TestAFenceOfATransactionThatReadBeforeTheTakeoverNeverSucceeds(t *testing.T) {
	for _, change := range []string{"taken over", "released and taken"} {
		t.Run(change, func(t *testing.T) {
			eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
				s, db := migrated(t, pgstore.Options{})
				g := acquired(t, s, "a", long)
				tx := begin(t, db, opts)
				exec(t, tx, "SELECT FROM "+migrations.Table)
				if change == "taken over" {
					expire(t, db)
				} else {
					require.NoError(t, s.Release(bounded(t), g))
				}
				acquired(t, s, "a", long)

				err := s.Fence(bounded(t), tx, g)
				if opts.IsoLevel == pgx.ReadCommitted {
					require.ErrorIs(t, err, joblease.ErrLost)
					return
				}
				undecided(t, err)
				require.Equal(t, "40001", sqlState(t, err))
			})
		})
	}
}

// The opposite, for what is harmless: the holder's own renewals.
func TestAFenceOfATransactionThatReadBeforeARenewalSucceeds(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := acquired(t, s, "a", long)
		tx := begin(t, db, opts)
		exec(t, tx, "SELECT FROM "+migrations.Table)
		require.NoError(t, s.Renew(bounded(t), g))
		require.NoError(t, s.Fence(bounded(t), tx, g))
		require.NoError(t, s.Renew(bounded(t), g))
		expire(t, db)
		_ = held(t, s, "a")
		require.NoError(t, tx.Commit(bounded(t)))
	})
}

func TestAFenceOfATransactionThatReadBeforeAReleaseKeepsOthersOut(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := acquired(t, s, "a", long)
		tx := begin(t, db, opts)
		exec(t, tx, "SELECT FROM "+migrations.Table)
		require.NoError(t, s.Release(bounded(t), g))
		err := s.Fence(bounded(t), tx, g)
		if opts.IsoLevel == pgx.ReadCommitted {
			require.ErrorIs(t, err, joblease.ErrLost)
			return
		}
		require.NoError(t, err)
		require.True(t, held(t, s, "a").Claim.IsZero())
		require.NoError(t, tx.Commit(bounded(t)))
		acquired(t, s, "a", long)
	})
}

func TestAFenceWaitsForATakeoverUnderWayAndIsLost(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := acquired(t, s, "a", long)
		takeover := lockRow(t, db, "a")
		exec(t, takeover, "UPDATE "+migrations.Table+" SET claim = gen_random_uuid(), token = token + 1, version = version + 1")
		fenced := make(chan error, 1)
		tx := begin(t, db, opts)
		go func() { fenced <- s.Fence(bounded(t), tx, g) }()
		awaitLockWaiters(t, db, 1)
		require.NoError(t, takeover.Commit(bounded(t)))
		err := <-fenced
		if opts.IsoLevel == pgx.ReadCommitted {
			require.ErrorIs(t, err, joblease.ErrLost)
			return
		}
		undecided(t, err)
		require.Equal(t, "40001", sqlState(t, err))
	})
}

func sqlState(t *testing.T, err error) string {
	t.Helper()
	var answer *pgconn.PgError
	require.ErrorAs(t, err, &answer)
	return answer.Code
}

// The window is between the snapshot of an acquire and its insert, for a name
// without a row. A trigger holds it open.
func TestATakeoverDoesNotPassTheFenceOfARowThatItDidNotSee(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	other := open(t, db.Pool(t), pgstore.Options{})
	db.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.holder = 'slow' THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END $$`)
	db.Exec(t, "CREATE TRIGGER slow BEFORE INSERT ON "+migrations.Table+" FOR EACH ROW EXECUTE FUNCTION slow()")
	gate := begin(t, db, pgx.TxOptions{})
	exec(t, gate, "SELECT pg_advisory_xact_lock(7)")
	c := claim("a", long, joblease.TakeNever)
	c.Holder = "slow"
	got := make(chan error, 1)
	go func() { _, err := other.Acquire(bounded(t), c); got <- err }()
	eventually(t, "the acquire has its snapshot", func() bool {
		return pgtest.Scan[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1
	})
	g := acquired(t, s, "a", long)
	tx := begin(t, db, pgx.TxOptions{})
	require.NoError(t, s.Fence(bounded(t), tx, g))
	require.NoError(t, s.Release(bounded(t), g))
	require.NoError(t, gate.Commit(bounded(t)))
	require.ErrorIs(t, <-got, joblease.ErrHeld, "the lease changed hands while a fenced transaction was open")
	require.NoError(t, tx.Commit(bounded(t)))
}
