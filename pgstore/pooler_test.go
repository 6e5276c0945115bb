package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
)

// A pooler in transaction mode gives each transaction the session that is free.
// Nothing may be left in one, and nothing be expected of it.
func TestAPoolerInTransactionModeIsNoHindrance(t *testing.T) {
	direct, db := migrated(t, pgstore.Options{})
	cfg, err := pgxpool.ParseConfig(pgtest.PgBouncer(t, db))
	require.NoError(t, err)
	s := open(t, pgtest.NewPool(t, cfg), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	require.NoError(t, s.Check(bounded(t)))

	w := s.Watch("0")
	defer w.Stop()
	concurrently(20, func(i int) {
		g, err := s.Acquire(bounded(t), claim(fmt.Sprint(i), long, joblease.TakeExpired))
		for range 20 {
			if err == nil {
				err = s.Renew(bounded(t), g)
			}
		}
		if err == nil {
			err = s.Release(bounded(t), g)
		}
		if err != nil {
			t.Error(err)
		}
	})

	g := acquired(t, s, "a", long)
	tx := lockRow(t, db, "a")
	ctx := within(t, 300*time.Millisecond)
	undecided(t, s.Renew(ctx, g))
	require.NoError(t, ctx.Err(), "ended by the server")
	require.NoError(t, tx.Rollback(bounded(t)))

	// A release cannot be relied on to be heard through it, and listening would
	// stay behind in a session that is somebody else's next.
	require.NoError(t, direct.Renew(bounded(t), g))
	require.NoError(t, direct.Release(bounded(t), g))
	require.False(t, w.Live())
	require.Zero(t, pgtest.Scan[int](t, db, "SELECT count(*) "+listeners))
	for _, name := range []string{"statement_timeout", "lock_timeout"} {
		var value string
		require.NoError(t, pgtest.NewPool(t, cfg).QueryRow(bounded(t), "SELECT current_setting($1)", pgx.QueryExecModeExec, name).Scan(&value))
		require.Equal(t, "0", value)
	}
}
