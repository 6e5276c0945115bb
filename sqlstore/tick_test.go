package sqlstore_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
)

// tick is an instant that has come.
var (
	tick  = time.Date(2020, 2, 29, 12, 0, 0, 123457000, time.UTC)
	again = joblease.Tick{At: tick, Again: true}
)

func tickClaim(ttl time.Duration, t joblease.Tick) joblease.Claim {
	c := claim("job", ttl)
	c.Tick = t
	return c
}

// refused requires that t is refused as a tick, and returns the refusal.
func refused(t *testing.T, s joblease.Store, tick joblease.Tick) *joblease.TickError {
	t.Helper()
	_, err := s.Acquire(within(t, 10*time.Second), tickClaim(long, tick))
	var e *joblease.TickError
	require.ErrorAs(t, err, &e)
	return e
}

func TestLosingATickWritesNoByteAndWaitsForNoWriter(t *testing.T) {
	path := newFile(t)
	s := newStore(t, open(t, path, wal+"&_pragma=busy_timeout(60000)"))
	require.NoError(t, s.Release(t.Context(), mustAcquire(t, s, tickClaim(long, joblease.Tick{At: tick}))))
	lock(t, open(t, path, wal))
	look := func() (all []string) {
		for _, name := range []string{path, path + "-wal"} {
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			all = append(all, string(b))
		}
		return all
	}
	before := look()
	sent := time.Now()
	for range 100 {
		require.True(t, refused(t, s, joblease.Tick{At: tick}).Due())
		require.False(t, refused(t, s, joblease.Tick{At: time.Now().Add(time.Hour)}).Due())
		c := claim("no row", long)
		c.Tick.At = time.Now().Add(time.Hour)
		_, err := s.Acquire(within(t, 10*time.Second), c)
		require.ErrorAs(t, err, new(*joblease.TickError))
	}
	require.Less(t, time.Since(sent), 10*time.Second)
	require.Equal(t, before, look())
}

// A look goes first, so only a rival that comes in between leaves the decision to
// the statement that takes.
func TestTheStatementThatTakesDecidesAboutTheTickByItself(t *testing.T) {
	s := newStore(t, open(t, newFile(t), wal))
	future := time.Now().Add(time.Hour)
	refuses := func(tick joblease.Tick) {
		t.Helper()
		before, err := s.List(t.Context())
		require.NoError(t, err)
		_, err = sqlstore.Take(t.Context(), s, tickClaim(long, tick))
		require.ErrorIs(t, err, sql.ErrNoRows)
		after, err := s.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, len(before), len(after))
	}
	refuses(joblease.Tick{At: future})
	g, err := sqlstore.Take(t.Context(), s, tickClaim(long, joblease.Tick{At: tick}))
	require.NoError(t, err)
	refuses(again)
	require.NoError(t, s.Release(t.Context(), g))
	for _, late := range []time.Duration{0, time.Microsecond, time.Hour} {
		refuses(joblease.Tick{At: tick.Add(-late)})
	}
	refuses(joblease.Tick{At: future})
	refuses(joblease.Tick{At: future, Again: true})
	g, err = sqlstore.Take(t.Context(), s, tickClaim(long, again))
	require.NoError(t, err)
	g.Finished = true
	require.NoError(t, s.Release(t.Context(), g))
	refuses(again)
	_, err = sqlstore.Take(t.Context(), s, tickClaim(long, joblease.Tick{At: tick.Add(time.Microsecond)}))
	require.NoError(t, err)
}

// newTicked is newFenced for a tick. The lease has expired.
func newTicked(t *testing.T, params string) fenced {
	path := newFile(t)
	f := fenced{db: open(t, path, params)}
	f.holder = newStore(t, f.db)
	f.rival = bareStore(t, open(t, path, params))
	exec(t, f.db, "CREATE TABLE work (token INTEGER NOT NULL)")
	f.g = mustAcquire(t, f.holder, tickClaim(short, joblease.Tick{At: tick}))
	require.Eventually(t, func() bool { return row(t, f.rival).Remaining <= 0 }, 10*time.Second, 5*time.Millisecond)
	return f
}

// work writes an effect of the run under g.
func (f fenced) work(t *testing.T, tx *sql.Tx, g joblease.Grant) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), "INSERT INTO work VALUES (?)", g.Token)
	require.NoError(t, err)
}

func (f fenced) effects(t *testing.T) int64 {
	return value[int64](t, f.db, "SELECT count(*) FROM work")
}

func TestATickWhoseHolderDiesAfterTheCommitIsNeverRunAgain(t *testing.T) {
	for name, params := range modes {
		t.Run(name, func(t *testing.T) {
			f := newTicked(t, params)
			tx := begin(t, f.db)
			f.work(t, tx, f.g)
			require.NoError(t, f.holder.Done(t.Context(), tx, f.g))
			require.NoError(t, tx.Commit()) // it is never released

			e := refused(t, f.rival, again)
			require.True(t, e.Done)
			require.Equal(t, tick, e.Last)
			require.EqualValues(t, 1, f.effects(t))
			mustAcquire(t, f.rival, tickClaim(long, joblease.Tick{At: tick.Add(time.Hour)}))
		})
	}
}

func TestATickWhoseHolderDiesBeforeTheCommitIsRunAgainOnce(t *testing.T) {
	for name, params := range modes {
		t.Run(name, func(t *testing.T) {
			f := newTicked(t, params)
			tx := begin(t, f.db)
			f.work(t, tx, f.g)
			require.NoError(t, f.holder.Done(t.Context(), tx, f.g))
			require.NoError(t, tx.Rollback())

			next := mustAcquire(t, f.rival, tickClaim(long, again))
			require.Equal(t, tick, next.Tick)
			tx = begin(t, f.db)
			f.work(t, tx, f.g)
			require.ErrorIs(t, f.holder.Done(t.Context(), tx, f.g), joblease.ErrLost, "it was only frozen, and goes on")
			require.NoError(t, tx.Rollback())

			tx = begin(t, f.db)
			f.work(t, tx, next)
			require.NoError(t, f.rival.Done(t.Context(), tx, next))
			require.NoError(t, tx.Commit())
			require.EqualValues(t, 1, f.effects(t))
			require.NoError(t, f.rival.Release(t.Context(), next))
			require.True(t, refused(t, f.holder, again).Done, "also if the release does not say so")
		})
	}
}

func TestNobodyTakesOverBetweenDoneAndTheEndOfItsTransaction(t *testing.T) {
	for name, params := range modes {
		t.Run(name, func(t *testing.T) {
			f := newTicked(t, params)
			tx := begin(t, f.db)
			require.NoError(t, f.holder.Fence(t.Context(), tx, f.g))
			require.NoError(t, f.holder.Done(t.Context(), tx, f.g))
			require.NoError(t, f.holder.Done(t.Context(), tx, f.g), "a second time")
			for _, c := range []joblease.Claim{claim("job", long), tickClaim(long, again)} {
				_, err := f.rival.Acquire(within(t, 100*time.Millisecond), c)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			waiting := make(chan error, 1)
			go func() {
				_, err := f.rival.Acquire(context.Background(), tickClaim(long, again))
				waiting <- err
			}()
			require.NoError(t, tx.Commit())
			require.ErrorAs(t, <-waiting, new(*joblease.TickError))
			require.True(t, refused(t, f.rival, again).Done)
		})
	}
}

func TestARunThatIsDoneStaysSoWhenItsClaimIsSentAgain(t *testing.T) {
	db := open(t, newFile(t), wal)
	s := newStore(t, db)
	c := tickClaim(long, again)
	g := mustAcquire(t, s, c)
	tx := begin(t, db)
	require.NoError(t, s.Done(t.Context(), tx, g))
	require.NoError(t, tx.Commit())
	require.Equal(t, tick, mustAcquire(t, s, c).Tick)
	require.NoError(t, s.Renew(t.Context(), g))
	require.NoError(t, s.Release(t.Context(), g))
	require.True(t, refused(t, s, again).Done)
}

func TestDoneIsLostOnceTheLeaseOrTheTickIsAnother(t *testing.T) {
	f := newTicked(t, wal)
	lost := func(s *sqlstore.SQLite, g joblease.Grant) {
		t.Helper()
		tx := begin(t, f.db)
		require.ErrorIs(t, s.Done(t.Context(), tx, g), joblease.ErrLost)
		require.NoError(t, tx.Rollback())
	}
	other := f.g
	other.Tick = tick.Add(time.Microsecond)
	lost(f.holder, other)
	next := mustAcquire(t, f.rival, tickClaim(long, again))
	lost(f.holder, f.g)
	require.NoError(t, f.rival.Release(t.Context(), next))
	lost(f.rival, next)
	require.False(t, row(t, f.rival).TickDone)
}

func TestDoneIsNoSignOfLife(t *testing.T) {
	f := newTicked(t, wal)
	want := row(t, f.rival)
	tx := begin(t, f.db)
	require.NoError(t, f.holder.Done(t.Context(), tx, f.g))
	require.NoError(t, tx.Commit())
	got := row(t, f.rival)
	want.TickDone, want.Remaining = true, got.Remaining
	require.Equal(t, want, got, "and nothing else")
}

func TestDoneBehindAStaleReadFailsAtOnce(t *testing.T) {
	f := newTicked(t, wal)
	tx := begin(t, f.db)
	value[int64](t, tx, "SELECT count(*) FROM work")
	require.NoError(t, f.holder.Renew(t.Context(), f.g))
	err := f.holder.Done(within(t, 10*time.Second), tx, f.g)
	require.ErrorContains(t, err, "read before it")
	require.NotErrorIs(t, err, joblease.ErrLost)
}

func TestDoneWithoutATickSaysWhatIsWrong(t *testing.T) {
	f := newFenced(t, wal)
	tx := begin(t, f.db)
	err := f.holder.Done(t.Context(), tx, f.g)
	require.ErrorContains(t, err, "the grant has no tick")
	require.NotErrorIs(t, err, joblease.ErrLost)
	require.NoError(t, f.holder.Fence(t.Context(), tx, f.g), "nothing was sent, so tx goes on")
}
