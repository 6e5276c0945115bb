package sqlstore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
)

// modes are the ways in which a file can be locked, each without and with a
// busy_timeout that outlasts the test.
var modes = map[string]string{
	"WAL":                                wal,
	"WAL, busy_timeout":                  wal + "&_pragma=busy_timeout(60000)",
	"rollback journal":                   rollback,
	"rollback journal and busy_timeout":  rollback + "&_pragma=busy_timeout(60000)",
	"WAL, transactions begin as writers": wal + "&_txlock=immediate",
}

func TestALosingAcquireDoesNotWaitForAWriter(t *testing.T) {
	path := newFile(t)
	s := newStore(t, open(t, path, wal+"&_pragma=busy_timeout(60000)"))
	g := mustAcquire(t, s, claim("job", long))
	lock(t, open(t, path, wal))
	sent := time.Now()
	_, err := s.Acquire(within(t, 10*time.Second), claim("job", long))
	require.ErrorIs(t, err, joblease.ErrHeld)
	require.Less(t, time.Since(sent), 5*time.Second)
	var held *joblease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, g.Claim, held.Claim)
}

func TestWhoLosesWritesNothing(t *testing.T) {
	for name, params := range map[string]string{"WAL": wal, "rollback journal": rollback} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			db, observer := open(t, path, params), open(t, path, params)
			db.SetMaxOpenConns(1) // total_changes counts within a connection
			observer.SetMaxOpenConns(1)
			s := newStore(t, db)
			g := mustAcquire(t, s, claim("job", long))
			size := func(suffix string) int64 {
				info, err := os.Stat(path + suffix)
				if os.IsNotExist(err) {
					return 0
				}
				require.NoError(t, err)
				return info.Size()
			}
			look := func() []int64 {
				return []int64{
					size(""), size("-wal"), size("-journal"),
					value[int64](t, observer, "PRAGMA data_version"),
					value[int64](t, db, "SELECT total_changes()"),
				}
			}
			before := look()
			forged := g
			forged.Claim = joblease.NewClaimID()
			for range 1000 {
				_, err := s.Acquire(t.Context(), claim("job", short))
				require.ErrorIs(t, err, joblease.ErrHeld)
			}
			for range 10 {
				require.ErrorIs(t, s.Renew(t.Context(), forged), joblease.ErrLost)
				require.ErrorIs(t, s.Release(t.Context(), forged), joblease.ErrLost)
			}
			s.Check(t.Context()) //nolint:errcheck // it complains about the journal, which is not the point
			require.Equal(t, before, look())
		})
	}
}

// A writer that outlasts a call leaves its outcome unknown: nothing was lost,
// and nobody is said to hold the lease.
func TestAWriterThatOutlastsACallDecidesNothing(t *testing.T) {
	for name, params := range modes {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			s := newStore(t, open(t, path, params))
			g := mustAcquire(t, s, claim("job", long))
			next := claim("next", long)
			unlock := lock(t, open(t, path, params))
			for what, call := range map[string]func(context.Context) error{
				"acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, next); return err },
				"renew":   func(ctx context.Context) error { return s.Renew(ctx, g) },
				"release": func(ctx context.Context) error { return s.Release(ctx, g) },
			} {
				sent := time.Now()
				// Time for a try or two on a busy machine: the error tells of the last.
				err := call(within(t, time.Second))
				require.Less(t, time.Since(sent), 5*time.Second, what)
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
				require.NotErrorIs(t, err, joblease.ErrHeld, what)
				require.NotErrorIs(t, err, joblease.ErrLost, what)
				var code interface{ Code() int }
				require.ErrorAs(t, err, &code, what)
				require.Equal(t, 5, code.Code()&0xff, "%s: %v; want SQLITE_BUSY in it", what, err)
			}
			list, err := s.List(t.Context())
			require.NoError(t, err, "a reader does not wait for a writer that has not committed")
			require.Len(t, list, 1)
			unlock()
			require.NoError(t, s.Renew(t.Context(), g))
			require.EqualValues(t, 1, mustAcquire(t, s, next).Token)
		})
	}
}

// Outside of WAL mode a commit waits for the readers, and fails after the
// statement has returned its row.
func TestAGrantThatAReaderKeepsFromCommittingIsNone(t *testing.T) {
	path := newFile(t)
	db := open(t, path, rollback)
	s := newStore(t, open(t, path, rollback))
	held := mustAcquire(t, s, claim("held", long))
	reader := begin(t, db)
	value[int64](t, reader, "SELECT count(*) FROM joblease_leases")
	c := claim("job", long)
	_, err := s.Acquire(within(t, 100*time.Millisecond), c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, s.Renew(within(t, 100*time.Millisecond), held), context.DeadlineExceeded)
	require.NoError(t, reader.Rollback())
	require.Equal(t, "held", row(t, s).Name)
	require.EqualValues(t, 1, mustAcquire(t, s, c).Token)
	require.NoError(t, s.Renew(t.Context(), held))
}

func TestACallThatWaitedForAWriterCountsTheTTLFromItsWrite(t *testing.T) {
	path := newFile(t)
	db := open(t, path, wal)
	s := newStore(t, db)
	const ttl, wait = time.Second, 200 * time.Millisecond
	held := mustAcquire(t, s, claim("held", ttl))
	unlock := lock(t, open(t, path, wal))
	start := time.Now()
	acquired := make(chan joblease.Grant, 1)
	renewed := make(chan error, 1)
	ctx := within(t, 10*time.Second)
	go func() {
		g, _ := s.Acquire(ctx, claim("job", ttl))
		acquired <- g
	}()
	go func() { renewed <- s.Renew(ctx, held) }()
	<-time.After(wait) // what passes is what is tested
	unlock()
	g := <-acquired
	require.EqualValues(t, 1, g.Token)
	require.NoError(t, <-renewed)
	list, err := s.List(t.Context())
	require.NoError(t, err)
	for _, r := range list {
		least := ttl + wait - time.Since(start) - 5*time.Millisecond
		require.Greater(t, r.Remaining, least, r.Name)
		require.GreaterOrEqual(t, r.RenewedAt.Sub(held.AcquiredAt), wait, r.Name)
	}
}

func TestTheCallersBusyTimeoutIsRestored(t *testing.T) {
	path := newFile(t)
	db := open(t, path, wal+"&_pragma=busy_timeout(12345)")
	db.SetMaxOpenConns(1)
	s := newStore(t, db)
	timeout := func() int64 { return value[int64](t, db, "PRAGMA busy_timeout") }
	g := mustAcquire(t, s, claim("job", long))
	require.EqualValues(t, 12345, timeout(), "after a call that succeeded")
	unlock := lock(t, open(t, path, wal))
	require.ErrorIs(t, s.Renew(within(t, 30*time.Millisecond), g), context.DeadlineExceeded)
	require.EqualValues(t, 12345, timeout(), "after a call that was given up")
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Fence(within(t, 30*time.Millisecond), tx, g), context.DeadlineExceeded)
	require.EqualValues(t, 12345, value[int64](t, tx, "PRAGMA busy_timeout"), "after a fence that was given up")
	require.NoError(t, tx.Rollback())
	unlock()
	require.NoError(t, s.Renew(t.Context(), g))
}

// A driver opens a connection with the settings of the DSN, and if one of them
// writes, waits for the lock as long as busy_timeout says.
func TestACallReturnsWhenOpeningAConnectionHangs(t *testing.T) {
	path := newFile(t)
	newStore(t, open(t, path, wal))
	unlock := lock(t, open(t, path, wal))
	s := bareStore(t, open(t, path, "?_pragma=busy_timeout(60000)&_pragma=user_version(7)"))
	sent := time.Now()
	_, err := s.List(within(t, 50*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(sent), 5*time.Second)
	unlock()
}

func TestACallWaitsForTheCallersOnlyConnectionAsLongAsItsContext(t *testing.T) {
	db := open(t, ":memory:", "")
	db.SetMaxOpenConns(1)
	s := newStore(t, db)
	g := mustAcquire(t, s, claim("job", long))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	err = s.Renew(within(t, 30*time.Millisecond), g)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, joblease.ErrLost)
	require.NoError(t, tx.Rollback())
	require.NoError(t, s.Renew(t.Context(), g))
	require.Zero(t, db.Stats().InUse, "a connection was kept")
}

// A grant that had expired when its commit came through would be worth nothing.
func TestAGrantWhoseCommitOutlastedTheTTLIsExtended(t *testing.T) {
	db := open(t, newFile(t), wal)
	db.SetMaxOpenConns(1)
	s := newStore(t, db)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	slow := true
	require.NoError(t, conn.Raw(func(driver any) error {
		driver.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
			if slow {
				slow = false
				time.Sleep(2 * short)
			}
			return 0
		})
		return nil
	}))
	require.NoError(t, conn.Close())
	g := mustAcquire(t, s, claim("job", short))
	require.False(t, slow)
	require.EqualValues(t, 1, g.Token)
	require.GreaterOrEqual(t, g.ExpiresAt.Sub(g.AcquiredAt), 3*short)
}

func TestManyCallsAtOnceNeedFewConnections(t *testing.T) {
	db := open(t, newFile(t), wal)
	db.SetMaxIdleConns(50) // so that what was opened stays open
	s := newStore(t, db)
	done := make(chan error)
	for i := range 50 {
		go func() {
			_, err := s.Acquire(within(t, 10*time.Second), claim(string(rune('A'+i)), long))
			done <- err
		}()
	}
	for range 50 {
		require.NoError(t, <-done)
	}
	require.LessOrEqual(t, db.Stats().OpenConnections, 4)
	require.Zero(t, db.Stats().InUse)
}
