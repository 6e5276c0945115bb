package pgstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/pgstore"
)

func TestNewRefusesWhatCannotWorkAndNamesTheField(t *testing.T) {
	// No server is needed: New does no I/O.
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	for _, c := range []struct {
		name  string
		pool  *pgxpool.Pool
		opts  pgstore.Options
		field string
	}{
		{"no pool", nil, pgstore.Options{}, "pool"},
		{"a table that PostgreSQL would cut", pool, pgstore.Options{Table: strings.Repeat("é", 32)}, "Table"},
		{"a table with a zero byte", pool, pgstore.Options{Table: "a\x00b"}, "Table"},
		{"a schema that PostgreSQL would cut", pool, pgstore.Options{Schema: strings.Repeat("s", 64)}, "Schema"},
		{"a schema with a zero byte", pool, pgstore.Options{Schema: "\x00"}, "Schema"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pgstore.New(c.pool, c.opts)
			var config *joblease.ConfigError
			require.ErrorAs(t, err, &config)
			require.Equal(t, c.field, config.Field)
		})
	}
	s, err := pgstore.New(pool, pgstore.Options{Table: strings.Repeat("t", 63), Schema: strings.Repeat("s", 63)})
	require.NoError(t, err)
	s.Close()
	s.Close()
}

func TestAClosedStoreFailsItsCallsAndLeavesTheCallersPoolOpen(t *testing.T) {
	for _, share := range []bool{false, true} {
		s, db := migrated(t, pgstore.Options{SharePool: share})
		pool := db.Pool(t)
		other := open(t, pool, pgstore.Options{SharePool: share})
		g := acquired(t, other, "a", long)
		other.Close()
		other.Close()

		err := other.Renew(bounded(t), g)
		require.ErrorContains(t, err, "closed")
		require.NotErrorIs(t, err, joblease.ErrLost)
		require.False(t, other.Watch("a").Live())
		require.NoError(t, pool.Ping(bounded(t)))
		require.NoError(t, s.Renew(bounded(t), g), "another store's connections are its own")
	}
}

func TestCloseEndsACallThatWaits(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	g := acquired(t, s, "a", long)
	lockRow(t, db, "a")
	renewed := make(chan error, 1)
	go func() { renewed <- s.Renew(bounded(t), g) }()
	awaitLockWaiters(t, db, 1)
	began := time.Now()
	s.Close()
	require.Less(t, time.Since(began), patience/2)
	err := <-renewed
	require.Error(t, err)
	require.False(t, errors.Is(err, joblease.ErrLost) || errors.Is(err, joblease.ErrHeld))
}
