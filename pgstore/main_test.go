package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is when something that must come to pass is given up.
const patience = 20 * time.Second

// ctx bounds a call of the test.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open returns a store, closed when the test ends.
func open(t testing.TB, pool *pgxpool.Pool, opts pgstore.Options) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(pool, opts)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// migrated returns a store on a database of its own, with its table.
func migrated(t testing.TB, opts pgstore.Options) (*pgstore.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	s := open(t, db.Pool(t), opts)
	require.NoError(t, s.Migrate(bounded(t)))
	return s, db
}

// claim returns a new claim on the lease name.
func claim(name string, ttl time.Duration, rule joblease.TakeoverRule) joblease.Claim {
	return joblease.Claim{
		Name: name, ID: joblease.NewClaimID(), Holder: "replica", TTL: ttl,
		Takeover: joblease.Takeover{Rule: rule},
	}
}

// acquired returns the grant of a new claim on the lease name.
func acquired(t testing.TB, s joblease.Store, name string, ttl time.Duration) joblease.Grant {
	t.Helper()
	g, err := s.Acquire(bounded(t), claim(name, ttl, joblease.TakeExpired))
	require.NoError(t, err)
	return g
}
