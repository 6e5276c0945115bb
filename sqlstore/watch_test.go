package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
)

// woken waits for a value on the watch.
func woken(t *testing.T, w joblease.Watch, why string) {
	t.Helper()
	select {
	case <-w.Wake:
	case <-time.After(10 * time.Second):
		require.Fail(t, "not woken", why)
	}
}

// live waits until the watch is as wanted.
func live(t *testing.T, w joblease.Watch, want bool) {
	t.Helper()
	require.Eventually(t, func() bool { return w.Live() == want }, 10*time.Second, time.Millisecond, "live: %v", want)
}

func TestAReleaseIsToldOnceAndOnlyToThoseThatWatchIt(t *testing.T) {
	path := newFile(t)
	s, other := newStore(t, open(t, path, wal)), bareStore(t, open(t, path, wal))
	one := mustAcquire(t, other, claim("one", long))
	two := mustAcquire(t, other, claim("two", long))
	first := s.Watch("one")
	defer first.Stop()
	woken(t, first, "live")
	second := s.Watch("two") // live from the start
	defer second.Stop()
	require.NoError(t, other.Release(t.Context(), one))
	woken(t, first, "released")
	// Whoever is told of what came later has been through another look.
	require.NoError(t, other.Release(t.Context(), two))
	woken(t, second, "released")
	require.Empty(t, first.Wake, "the release of one was told again, or that of two as well")
	require.Empty(t, second.Wake)
}

// Versions tell one release from the next, but start anew with a new row.
func TestAReleaseOfANewRowIsToldThoughItsVersionWasToldBefore(t *testing.T) {
	db := open(t, newFile(t), wal)
	s := newStore(t, db)
	g := mustAcquire(t, s, claim("job", long))
	w := s.Watch("job")
	defer w.Stop()
	woken(t, w, "live")
	for range 2 {
		require.NoError(t, s.Release(t.Context(), g))
		require.EqualValues(t, 2, row(t, s).Version)
		woken(t, w, "released")
		// As if the row had been deleted and acquired anew.
		exec(t, db, "UPDATE joblease_leases SET version = 1, claim = ?", g.Claim[:])
		other := s.Watch("other")
		woken(t, other, "a look has found that the job is held")
		other.Stop()
	}
}

func TestAWatchTellsOfALeaseThatIsFreeAlready(t *testing.T) {
	s := newStore(t, open(t, newFile(t), wal))
	mustAcquire(t, s, claim("held", long))
	held := s.Watch("held")
	defer held.Stop()
	woken(t, held, "live")
	absent := s.Watch("absent")
	defer absent.Stop()
	woken(t, absent, "there is no such row")
	require.Empty(t, held.Wake)
}

func TestADeletedRowWakesTheCandidates(t *testing.T) {
	db := open(t, newFile(t), wal)
	s := newStore(t, db)
	mustAcquire(t, s, claim("job", long))
	w := s.Watch("job")
	defer w.Stop()
	woken(t, w, "live")
	exec(t, db, "DELETE FROM joblease_leases")
	woken(t, w, "deleted")
}

func TestAWatchIsLiveOnlyWhileTheRowsCanBeRead(t *testing.T) {
	db := open(t, newFile(t), wal)
	s := newStore(t, db)
	mustAcquire(t, s, claim("job", long))
	w := s.Watch("job")
	defer w.Stop()
	woken(t, w, "live")
	require.True(t, w.Live())
	exec(t, db, "ALTER TABLE joblease_leases RENAME TO away")
	woken(t, w, "not live any more")
	require.False(t, w.Live())
	exec(t, db, "ALTER TABLE away RENAME TO joblease_leases")
	woken(t, w, "live again")
	require.True(t, w.Live())
}

func TestAWatchIsNotLiveWhileThePoolHasNoConnection(t *testing.T) {
	db := open(t, ":memory:", "")
	db.SetMaxOpenConns(1)
	s := newStore(t, db)
	w := s.Watch("job")
	defer w.Stop()
	live(t, w, true)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	live(t, w, false)
	require.NoError(t, tx.Rollback())
	live(t, w, true)
}

func TestCloseEndsTheWatchesAndNothingElse(t *testing.T) {
	db := open(t, newFile(t), wal)
	s := newStore(t, db)
	g := mustAcquire(t, s, claim("job", long))
	w := s.Watch("job")
	woken(t, w, "live")
	s.Close()
	s.Close()
	woken(t, w, "closed")
	require.False(t, w.Live())
	w.Stop()
	late := s.Watch("job")
	require.False(t, late.Live())
	late.Stop()
	require.NoError(t, s.Release(t.Context(), g))
	require.NoError(t, db.PingContext(context.Background()))
}

func TestTheGoroutineEndsWithTheLastWatchAndComesBackWithTheNext(t *testing.T) {
	db := open(t, newFile(t), wal)
	newStore(t, db)
	s, err := sqlstore.NewSQLite(db, sqlstore.Options{}) // never closed: goleak would find the goroutine
	require.NoError(t, err)
	for range 20 {
		w, other := s.Watch("job"), s.Watch("job")
		w.Stop()
		live(t, other, true)
		other.Stop()
		other.Stop()
		require.False(t, other.Live())
	}
}
