package pgstore_test

import (
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

// quiet returns a server that writes nothing by itself, so that every byte of
// WAL is somebody's.
func quiet(t *testing.T) *pgtest.DB {
	t.Helper()
	server := pgtest.StartServer(t, pgtest.Options{Params: map[string]string{
		"wal_level": "minimal", "max_wal_senders": "0", "checkpoint_timeout": "1d", "autovacuum": "off",
		// Every statement that is refused or warned about shows in the log.
		"log_min_messages": "notice", "log_min_error_statement": "notice",
	}})
	return server.NewDB(t, "")
}

func TestLosingCostsTheDatabaseNothing(t *testing.T) {
	const attempts = 1000
	db := quiet(t)
	s := open(t, db.Pool(t), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	g := acquired(t, s, "a", long)
	for _, rule := range []joblease.TakeoverRule{
		joblease.TakeNever, joblease.TakeExpired, joblease.TakeSightedExpired, joblease.TakeSighted,
	} {
		t.Run(rule.String(), func(t *testing.T) {
			c := claim("a", long, rule)
			// A sighting of the version before. It is never right again.
			c.Takeover.Claim, c.Takeover.Version = g.Claim, 0
			lose := func() {
				_, err := s.Acquire(bounded(t), c)
				require.ErrorIs(t, err, joblease.ErrHeld)
			}
			lose() // the connection is made
			before := costs(t, db)
			goroutines := runtime.NumGoroutine()
			for range attempts {
				lose()
			}
			after := costs(t, db)
			t.Logf("%d attempts: %d bytes of WAL, %d transaction ids, %d lines in the log",
				attempts, after.wal-before.wal, after.xids-before.xids, after.logLines-before.logLines)
			require.Equal(t, before, after)
			// The last call's own goroutines may be about to end.
			eventually(t, "no goroutine stays behind", func() bool { return runtime.NumGoroutine() <= goroutines })
		})
	}
}

// cost is what a database has spent so far.
type cost struct {
	wal, xids          int64
	logLines, sessions int
	row                string
}

func costs(t *testing.T, db *pgtest.DB) cost {
	return cost{
		wal:  pgtest.Scan[int64](t, db, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"),
		xids: pgtest.Scan[int64](t, db, nextXID),
		// A line is in the file when the statement's answer has come.
		logLines: len(db.Log(t)), sessions: db.Sessions(t), row: row(t, db, "a"),
	}
}

func TestTenThousandRenewalsAreHeapOnlyAndTheTableStaysSmall(t *testing.T) {
	const renewals = 10_000
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	for range renewals {
		require.NoError(t, s.Renew(bounded(t), g))
	}
	// A session's counts are certain to be told when it ends.
	s.Close()
	stats := func(column string) float64 {
		return float64(pgtest.Scan[int64](t, db, "SELECT "+column+" FROM pg_stat_user_tables WHERE relname = $1", migrations.Table))
	}
	eventually(t, "the counts arrive", func() bool { return stats("n_tup_upd") >= renewals })
	hot := stats("n_tup_hot_upd") / stats("n_tup_upd")
	size := pgtest.Scan[int64](t, db, "SELECT pg_total_relation_size($1::text::regclass)", migrations.Table)
	t.Logf("%.1f %% heap-only, %d bytes", 100*hot, size)
	require.Greater(t, hot, 0.95)
	require.Less(t, size, int64(1<<20))
}

// Nothing that is part of the daily round may frighten whoever reads the log.
func TestTheServersLogStaysEmpty(t *testing.T) {
	db := quiet(t)
	s := open(t, db.Pool(t), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	before := len(db.Log(t))
	require.NoError(t, s.Migrate(bounded(t)))
	w := s.Watch("a")
	defer w.Stop()
	eventually(t, "it listens", w.Live)
	g := ticked(t, s)
	_ = refused(t, s, joblease.Tick{At: tick})
	tx := begin(t, db, pgx.TxOptions{})
	require.NoError(t, s.Done(bounded(t), tx, g))
	require.NoError(t, tx.Commit(bounded(t)))
	_ = held(t, s, "a")
	require.NoError(t, s.Renew(bounded(t), g))
	require.NoError(t, s.Fence(bounded(t), begin(t, db, pgx.TxOptions{}), g))
	_, err := s.List(bounded(t))
	require.NoError(t, err)
	require.NoError(t, s.Release(bounded(t), g))
	require.ErrorIs(t, s.Release(bounded(t), g), joblease.ErrLost)
	require.ErrorIs(t, s.Renew(bounded(t), g), joblease.ErrLost)
	s.Close()
	eventually(t, "its sessions end", func() bool { return db.Sessions(t) <= 2 }) // those of the transactions
	require.Empty(t, db.Log(t)[before:])
}
