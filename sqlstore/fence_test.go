package sqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
)

// fenced is a lease that has expired, its holder's database, and a rival on the
// same file.
type fenced struct {
	db            *sql.DB
	holder, rival *sqlstore.SQLite
	g             joblease.Grant
}

func newFenced(t *testing.T, params string) fenced {
	path := newFile(t)
	f := fenced{db: open(t, path, params)}
	f.holder = newStore(t, f.db)
	f.rival = bareStore(t, open(t, path, params))
	exec(t, f.db, "CREATE TABLE work (token INTEGER NOT NULL)")
	f.g = mustAcquire(t, f.holder, claim("job", short))
	require.Eventually(t, func() bool { return row(t, f.rival).Remaining <= 0 }, 10*time.Second, 5*time.Millisecond)
	return f
}

// row returns the only row.
func row(t testing.TB, s joblease.Store) joblease.Record {
	t.Helper()
	list, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() }) //nolint:errcheck // it may have ended
	return tx
}

func TestNobodyTakesOverWhileAFencedTransactionIsOpen(t *testing.T) {
	for name, params := range modes {
		t.Run(name, func(t *testing.T) {
			f := newFenced(t, params)
			tx := begin(t, f.db)
			require.NoError(t, f.holder.Fence(t.Context(), tx, f.g))
			_, err := tx.ExecContext(t.Context(), "INSERT INTO work VALUES (?)", f.g.Token)
			require.NoError(t, err)
			_, err = f.rival.Acquire(within(t, 100*time.Millisecond), claim("job", long))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, tx.Commit())
			require.EqualValues(t, 1, value[int64](t, f.db, "SELECT count(*) FROM work"))
			require.EqualValues(t, 2, mustAcquire(t, f.rival, claim("job", long)).Token)
		})
	}
}

func TestAFenceIsLostOnceTheLeaseHasChangedHands(t *testing.T) {
	f := newFenced(t, wal)
	next := mustAcquire(t, f.rival, claim("job", long))
	tx := begin(t, f.db)
	require.ErrorIs(t, f.holder.Fence(t.Context(), tx, f.g), joblease.ErrLost)
	require.NoError(t, tx.Rollback())

	require.NoError(t, f.rival.Release(t.Context(), next))
	tx = begin(t, f.db)
	require.ErrorIs(t, f.holder.Fence(t.Context(), tx, next), joblease.ErrLost, "released")
	require.NoError(t, tx.Rollback())
}

// Even a fence that does not match locks the others out until its transaction
// ends, so that its answer stays true.
func TestAFenceThatIsLostIsStillLockedAgainstOthers(t *testing.T) {
	f := newFenced(t, wal)
	next := mustAcquire(t, f.rival, claim("job", long))
	tx := begin(t, f.db)
	require.ErrorIs(t, f.holder.Fence(t.Context(), tx, f.g), joblease.ErrLost)
	require.ErrorIs(t, f.rival.Renew(within(t, 50*time.Millisecond), next), context.DeadlineExceeded)
}

func TestAFenceIsNoSignOfLife(t *testing.T) {
	f := newFenced(t, wal)
	before := row(t, f.rival)
	tx := begin(t, f.db)
	require.NoError(t, f.holder.Fence(t.Context(), tx, f.g))
	require.NoError(t, tx.Commit())
	after := row(t, f.rival)
	before.Remaining, after.Remaining = 0, 0
	require.Equal(t, before, after)
	g, err := f.rival.Acquire(t.Context(), joblease.Claim{Name: "job", ID: joblease.NewClaimID(), TTL: long,
		Takeover: joblease.Takeover{Rule: joblease.TakeSightedExpired, Claim: before.Claim, Version: before.Version}})
	require.NoError(t, err, "what a standby sighted before the fence is good for a takeover after it")
	require.EqualValues(t, 2, g.Token)
}

func TestAFenceWaitsForAWriterAsLongAsItsContext(t *testing.T) {
	for name, params := range modes {
		if strings.Contains(params, "_txlock") {
			continue // BEGIN waits, before there is a transaction to fence
		}
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			db := open(t, path, params)
			s := newStore(t, db)
			g := mustAcquire(t, s, claim("job", long))
			tx := begin(t, open(t, path, params))
			unlock := lock(t, db)
			sent := time.Now()
			err := s.Fence(within(t, 100*time.Millisecond), tx, g)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, joblease.ErrLost)
			require.Less(t, time.Since(sent), 5*time.Second)
			done := make(chan error)
			go func() { done <- s.Fence(within(t, 10*time.Second), tx, g) }()
			unlock()
			require.NoError(t, <-done)
			require.NoError(t, tx.Commit())
		})
	}
}

func TestAFenceBehindAStaleReadFailsAtOnce(t *testing.T) {
	f := newFenced(t, wal)
	tx := begin(t, f.db)
	value[int64](t, tx, "SELECT count(*) FROM work")
	next := mustAcquire(t, f.rival, claim("job", long))
	sent := time.Now()
	err := f.holder.Fence(within(t, 10*time.Second), tx, next)
	require.ErrorContains(t, err, "read before it was fenced")
	require.NotErrorIs(t, err, joblease.ErrLost, "what the transaction reads is old")
	require.Less(t, time.Since(sent), 5*time.Second)
}

func TestAFenceOnADatabaseWithoutLeasesSaysSo(t *testing.T) {
	f := newFenced(t, wal)
	tx := begin(t, open(t, newFile(t), wal))
	var setup *joblease.SetupError
	require.ErrorAs(t, f.holder.Fence(t.Context(), tx, f.g), &setup)
	require.ErrorContains(t, setup, "does not exist")
}

// Whose own context ends at the instant of a try cannot be helped: tx is gone. That
// is one in a hundred; it must not be the rule.
func TestAFenceThatIsGivenUpLeavesTheConnectionAsItWas(t *testing.T) {
	const rounds = 20
	kept := 0
	for range rounds {
		path, params := newFile(t), wal+"&_pragma=busy_timeout(500)"
		db := open(t, path, params)
		db.SetMaxOpenConns(1)
		s := newStore(t, db)
		g := mustAcquire(t, s, claim("job", long))
		unlock := lock(t, open(t, path, params))
		tx, err := db.BeginTx(within(t, 100*time.Millisecond), nil)
		require.NoError(t, err)
		require.Error(t, s.Fence(within(t, time.Second), tx, g))
		_ = tx.Rollback() // the end of its context has done it
		unlock()
		if value[int](t, db, "PRAGMA busy_timeout") == 500 {
			kept++
		}
	}
	require.Greater(t, kept, rounds/2)
}
