package pgstore_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

// refusesToDecide requires of every call that it fails without a decision.
func refusesToDecide(t *testing.T, s *pgstore.Store, g joblease.Grant, check func(t *testing.T, err error)) {
	t.Helper()
	ctx := func() context.Context { return within(t, 2*time.Second) }
	_, err := s.Acquire(ctx(), claim(g.Name, long, joblease.TakeExpired))
	for _, err := range []error{err, s.Renew(ctx(), g), s.Release(ctx(), g)} {
		undecided(t, err)
		check(t, err)
	}
}

func TestAServerThatCannotServeIsNeverTakenForARefusal(t *testing.T) {
	server := pgtest.StartServer(t, pgtest.Options{HBA: "host all secret 127.0.0.1/32 scram-sha-256\n" +
		"host all all 127.0.0.1/32 trust\nlocal all all trust\n"})
	db := server.NewDB(t, "")
	s := open(t, db.Pool(t), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	g := acquired(t, s, "a", long)
	readOnly := func(t *testing.T, err error) { setupError(t, err, "read-only", "primary") }

	t.Run("read-only", func(t *testing.T) {
		// Without this the server refuses to be made writable again.
		admin := db.Conn(t)
		set := func(value string) {
			_, err := admin.Exec(bounded(t), "SET default_transaction_read_only = off")
			require.NoError(t, err)
			_, err = admin.Exec(bounded(t), "ALTER SYSTEM SET default_transaction_read_only = "+value)
			require.NoError(t, err)
			_, err = admin.Exec(bounded(t), "SELECT pg_reload_conf()")
			require.NoError(t, err)
			eventually(t, "the setting is in force", func() bool {
				return pgtest.Scan[string](t, db, "SHOW default_transaction_read_only") == value
			})
		}
		set("on")
		refusesToDecide(t, s, g, readOnly)
		eventually(t, "the connections are dropped, so that the next can reach another server", func() bool {
			return storeSessions(t, db) == 0
		})
		setupError(t, s.Check(bounded(t)), "read-only", "primary")
		set("off")
		require.NoError(t, s.Renew(bounded(t), g))
	})
	t.Run("hot standby", func(t *testing.T) {
		server.Demote(t)
		refusesToDecide(t, s, g, readOnly)
		setupError(t, s.Check(bounded(t)), "read-only", "primary")
		records, err := s.List(bounded(t))
		require.NoError(t, err)
		require.Equal(t, g.Claim, records[0].Claim, "it can be read")
		require.True(t, pgtest.Scan[bool](t, db, "SELECT pg_promote()"))
		require.NoError(t, s.Renew(bounded(t), g))
	})
	t.Run("wrong password", func(t *testing.T) {
		db.Exec(t, "CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'right'")
		cfg := db.Config(t)
		cfg.ConnConfig.User = "secret"
		password := "wrong"
		cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { c.Password = password; return nil }
		stranger := open(t, pgtest.NewPool(t, cfg), pgstore.Options{})
		refusesToDecide(t, stranger, g, func(t *testing.T, err error) {
			require.ErrorContains(t, err, "password authentication failed")
		})
		password = "right"
		require.NoError(t, stranger.Renew(bounded(t), g))
	})
	t.Run("may not connect", func(t *testing.T) {
		db.Exec(t, "CREATE ROLE stranger LOGIN")
		db.Exec(t, "REVOKE CONNECT ON DATABASE "+db.Name+" FROM PUBLIC")
		cfg := db.Config(t)
		cfg.ConnConfig.User = "stranger"
		refusesToDecide(t, open(t, pgtest.NewPool(t, cfg), pgstore.Options{}), g, func(t *testing.T, err error) {
			require.ErrorContains(t, err, "permission denied for database")
			require.NotContains(t, err.Error(), "GRANT SELECT", "it is not the table's privileges that are missing")
		})
	})
	t.Run("no place left in the pool", func(t *testing.T) {
		cfg := db.Config(t)
		cfg.MaxConns = 1
		pool := pgtest.NewPool(t, cfg)
		crowded := open(t, pool, pgstore.Options{SharePool: true})
		conn, err := pool.Acquire(bounded(t))
		require.NoError(t, err)
		defer conn.Release() // the pool cannot be closed without it
		undecided(t, crowded.Renew(within(t, 50*time.Millisecond), g))
		err = crowded.Renew(within(t, 50*time.Millisecond), g)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no connection of the pool became free, all 1 are in use")
		conn.Release()
		require.NoError(t, crowded.Renew(bounded(t), g))
	})
	t.Run("closed port", func(t *testing.T) {
		server.Stop(t, pgtest.Immediate)
		refusesToDecide(t, s, g, func(t *testing.T, err error) { require.ErrorContains(t, err, "refused") })
		server.Start(t)
		require.NoError(t, s.Renew(bounded(t), g), "the lease outlives a crash of the server")
	})
	t.Run("restarted between two calls", func(t *testing.T) {
		// Both connections are idle, and neither knows that it is dead.
		tx := lockRow(t, db, "a")
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- s.Renew(bounded(t), g) }()
		}
		awaitLockWaiters(t, db, 2)
		require.NoError(t, tx.Rollback(bounded(t)))
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.Equal(t, 2, storeSessions(t, db))
		server.Restart(t, pgtest.Fast)
		require.NoError(t, s.Renew(bounded(t), g), "nobody notices")
	})
}

func TestAConnectionThatIsTerminatedCostsNoRenewal(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	for range 20 {
		db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = ''`)
		require.NoError(t, s.Renew(bounded(t), g))
	}
	// Also while the statement is under way.
	tx := lockRow(t, db, "a")
	renewed := make(chan error, 1)
	go func() { renewed <- s.Renew(bounded(t), g) }()
	awaitLockWaiters(t, db, 1)
	db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
	require.NoError(t, tx.Rollback(bounded(t)))
	require.NoError(t, <-renewed)
}

// The network swallows everything on all connections. The calls under way end
// with their contexts, and the places of their connections are free at once.
func TestConnectionsThatHangDoNotKeepLaterCallsOut(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	p := newProxy(t, db)
	s := open(t, p.pool(t, db), pgstore.Options{})
	g := acquired(t, s, "a", long)

	const callTimeout = 200 * time.Millisecond
	for round := range 3 {
		p.freeze(true)
		for range 4 {
			began := time.Now()
			undecided(t, s.Renew(within(t, callTimeout), g))
			require.Less(t, time.Since(began), 10*callTimeout)
		}
		p.thaw()
		// An attempt to connect that began in the gap may have to end first,
		// which takes a second.
		began := time.Now()
		eventually(t, "a renewal succeeds", func() bool { return s.Renew(within(t, callTimeout), g) == nil })
		require.Less(t, time.Since(began), 3*time.Second, "round %d", round)
	}
	p.freeze(false)
	undecided(t, s.Renew(within(t, callTimeout), g))
	require.NoError(t, s.Renew(within(t, 5*time.Second), g), "a new connection is made at once")
}

func TestATokenAtItsMaximumIsAnErrorAndStaysWhereItIs(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	db.Exec(t, "UPDATE "+migrations.Table+" SET token = $1", int64(math.MaxInt64))
	require.NoError(t, s.Renew(bounded(t), g))
	require.NoError(t, s.Release(bounded(t), g))
	before := row(t, db, "a")
	_, err := s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
	undecided(t, err)
	require.ErrorContains(t, err, "maximum")
	// The attempt has locked the row, which its xmax tells; nothing else is new.
	require.Equal(t, before[len(before)-100:], row(t, db, "a")[len(row(t, db, "a"))-100:])
}

func TestAnExpiryThatAnOperatorSetToInfinityIsARefusal(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	db.Exec(t, "UPDATE "+migrations.Table+" SET expires_at = 'infinity'")
	require.Greater(t, held(t, s, "a").Remaining, 365*24*time.Hour)
	_, err := s.List(bounded(t))
	require.NoError(t, err)
	require.NoError(t, s.Renew(bounded(t), g))
	db.Exec(t, "UPDATE "+migrations.Table+" SET expires_at = '-infinity'")
	_, err = s.List(bounded(t))
	require.NoError(t, err)
	acquired(t, s, "a", long)
}

func TestALeaseWhoseRowIsDeletedIsLostAndFree(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	for range 5 {
		g := acquired(t, s, "a", long)
		require.NoError(t, s.Renew(bounded(t), g))
		db.Exec(t, "DELETE FROM "+migrations.Table)
		require.ErrorIs(t, s.Renew(bounded(t), g), joblease.ErrLost)
		require.ErrorIs(t, s.Release(bounded(t), g), joblease.ErrLost)
	}
}

// storeSessions returns how many sessions there are that carried out a statement
// of a store last.
func storeSessions(t *testing.T, db *pgtest.DB) int {
	t.Helper()
	return pgtest.Scan[int](t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE '%joblease%' AND pid <> pg_backend_pid()`)
}
