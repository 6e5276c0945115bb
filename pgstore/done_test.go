package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

// effects is a table that transactions under a tick write to, and what counts
// the rows.
func effects(t *testing.T, db *pgtest.DB) (count func() int64) {
	t.Helper()
	db.Exec(t, "CREATE TABLE effects (token bigint)")
	return func() int64 { return pgtest.Scan[int64](t, db, "SELECT count(*) FROM effects") }
}

func TestATickWhoseHolderDiesAfterTheCommitIsNeverRunAgain(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		count := effects(t, db)
		g := ticked(t, s)
		tx := begin(t, db, opts)
		exec(t, tx, "INSERT INTO effects VALUES ($1)", g.Token)
		require.NoError(t, s.Done(bounded(t), tx, g))
		require.NoError(t, tx.Commit(bounded(t)))
		expire(t, db) // it was never released

		e := refused(t, s, again)
		require.True(t, e.Done)
		require.Equal(t, tick, e.Last)
		require.EqualValues(t, 1, count())
		_, err := s.Acquire(bounded(t), tickClaim("a", joblease.Tick{At: tick.Add(time.Hour)}))
		require.NoError(t, err, "the next tick")
	})
}

func TestATickWhoseHolderDiesBeforeTheCommitIsRunAgainOnce(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		count := effects(t, db)
		g := ticked(t, s)
		frozen := begin(t, db, opts)
		exec(t, frozen, "INSERT INTO effects VALUES ($1)", g.Token)
		expire(t, db)

		next, err := s.Acquire(bounded(t), tickClaim("a", again))
		require.NoError(t, err)
		require.Equal(t, tick, next.Tick)
		tx := begin(t, db, opts)
		exec(t, tx, "INSERT INTO effects VALUES ($1)", next.Token)
		require.NoError(t, s.Done(bounded(t), tx, next))
		require.NoError(t, tx.Commit(bounded(t)))

		// The first holder was only frozen, and goes on.
		err = s.Done(bounded(t), frozen, g)
		if opts.IsoLevel == pgx.ReadCommitted {
			require.ErrorIs(t, err, joblease.ErrLost)
		} else {
			undecided(t, err)
			require.Equal(t, "40001", sqlState(t, err))
		}
		require.NoError(t, frozen.Rollback(bounded(t)))
		require.EqualValues(t, 1, count())
		require.NoError(t, s.Release(bounded(t), next))
		require.True(t, refused(t, s, again).Done, "also if the release does not say so")
	})
}

func TestNobodyTakesOverBetweenDoneAndTheEndOfItsTransaction(t *testing.T) {
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
				s, db := migrated(t, pgstore.Options{})
				g := ticked(t, s)
				expire(t, db)
				tx := begin(t, db, opts)
				require.NoError(t, s.Fence(bounded(t), tx, g))
				require.NoError(t, s.Done(bounded(t), tx, g))
				require.NoError(t, s.Done(bounded(t), tx, g), "a second time")

				for _, c := range []joblease.Claim{
					claim("a", long, joblease.TakeExpired), tickClaim("a", again), tickClaim("a", joblease.Tick{Slot: time.Minute}),
				} {
					_, err := s.Acquire(bounded(t), c)
					require.ErrorIs(t, err, joblease.ErrHeld)
				}
				if end == "commit" {
					require.NoError(t, tx.Commit(bounded(t)))
					require.True(t, refused(t, s, again).Done)
					return
				}
				require.NoError(t, tx.Rollback(bounded(t)))
				_, err := s.Acquire(bounded(t), tickClaim("a", again))
				require.NoError(t, err)
			})
		})
	}
}

func TestARenewalWaitsForTheEndOfATransactionWithDone(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := ticked(t, s)
	before := row(t, db, "a")
	tx := begin(t, db, pgx.TxOptions{})
	require.NoError(t, s.Done(bounded(t), tx, g))
	undecided(t, s.Renew(within(t, 300*time.Millisecond), g))
	renewed := make(chan error, 1)
	go func() { renewed <- s.Renew(bounded(t), g) }()
	awaitLockWaiters(t, db, 1)
	require.NotEqual(t, before, row(t, db, "a"), "the row is locked")
	require.NoError(t, tx.Commit(bounded(t)))
	require.NoError(t, <-renewed)
	require.NoError(t, s.Release(bounded(t), g))
}

func TestDoneIsNoSignOfLife(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := ticked(t, s)
	record := func() joblease.Record {
		records, err := s.List(bounded(t))
		require.NoError(t, err)
		records[0].Remaining = 0
		return records[0]
	}
	want := record()
	require.False(t, want.TickDone)
	want.TickDone = true
	tx := begin(t, db, pgx.TxOptions{})
	require.NoError(t, s.Done(bounded(t), tx, g))
	require.NoError(t, tx.Commit(bounded(t)))
	require.Equal(t, want, record(), "and nothing else")
}

func TestARunThatIsDoneStaysSoWhenItsClaimIsSentAgain(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	c := tickClaim("a", again)
	g, err := s.Acquire(bounded(t), c)
	require.NoError(t, err)
	tx := begin(t, db, pgx.TxOptions{})
	require.NoError(t, s.Done(bounded(t), tx, g))
	require.NoError(t, tx.Commit(bounded(t)))
	g, err = s.Acquire(bounded(t), c)
	require.NoError(t, err)
	require.Equal(t, tick, g.Tick)
	require.NoError(t, s.Renew(bounded(t), g))
	require.NoError(t, s.Release(bounded(t), g))
	require.True(t, refused(t, s, again).Done)
}

func TestDoneAfterTheLeaseHasGoneIsLost(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := ticked(t, s)
		lost := func(g joblease.Grant) {
			t.Helper()
			require.ErrorIs(t, s.Done(bounded(t), begin(t, db, opts), g), joblease.ErrLost)
		}
		other := g
		other.Tick = tick.Add(time.Microsecond)
		lost(other)
		other = g
		other.Name = "b"
		lost(other)
		require.NoError(t, s.Release(bounded(t), g))
		lost(g)
		next, err := s.Acquire(bounded(t), tickClaim("a", again))
		require.NoError(t, err)
		lost(g)
		require.NoError(t, s.Done(bounded(t), begin(t, db, opts), next))
	})
}

func TestDoneOfATransactionThatReadBeforeARenewal(t *testing.T) {
	eachIsolation(t, func(t *testing.T, opts pgx.TxOptions) {
		s, db := migrated(t, pgstore.Options{})
		g := ticked(t, s)
		tx := begin(t, db, opts)
		exec(t, tx, "SELECT FROM "+migrations.Table)
		require.NoError(t, s.Renew(bounded(t), g))
		err := s.Done(bounded(t), tx, g)
		if opts.IsoLevel == pgx.ReadCommitted {
			require.NoError(t, err)
			return
		}
		undecided(t, err)
		require.Equal(t, "40001", sqlState(t, err))
		require.NoError(t, tx.Rollback(bounded(t)))
		require.NoError(t, s.Done(bounded(t), begin(t, db, opts), g), "tried again")
	})
}

func TestDoneWaitsForATakeoverUnderWayAndIsLost(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := ticked(t, s)
	takeover := lockRow(t, db, "a")
	exec(t, takeover, "UPDATE "+migrations.Table+" SET claim = gen_random_uuid(), token = token + 1, version = version + 1")
	done := make(chan error, 1)
	tx := begin(t, db, pgx.TxOptions{})
	go func() { done <- s.Done(bounded(t), tx, g) }()
	awaitLockWaiters(t, db, 1)
	require.NoError(t, takeover.Commit(bounded(t)))
	require.ErrorIs(t, <-done, joblease.ErrLost)
}

func TestDoneWithoutATickSaysWhatIsWrong(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	tx := begin(t, db, pgx.TxOptions{})
	err := s.Done(bounded(t), tx, g)
	undecided(t, err)
	require.ErrorContains(t, err, `the grant has no tick`)
	require.NoError(t, s.Fence(bounded(t), tx, g), "nothing was sent, so tx goes on")
}
