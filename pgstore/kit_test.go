package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	// patience is when something that must come to pass is given up.
	patience = 20 * time.Second
	// long is a TTL that no test outlives.
	long = time.Hour
)

// bounded returns a context for the calls of a test that must not hang.
func bounded(t testing.TB) context.Context {
	t.Helper()
	return within(t, patience)
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until the database shows what it cannot tell by itself.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "not within the test's patience: "+what)
		}
	}
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

// poolAs returns a pool for another user, whose password is pgtest.
func poolAs(t testing.TB, db *pgtest.DB, user string) *pgxpool.Pool {
	t.Helper()
	cfg := db.Config(t)
	cfg.ConnConfig.User, cfg.ConnConfig.Password = user, "pgtest"
	return pgtest.NewPool(t, cfg)
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

// held requires that the lease name is refused, and returns the refusal.
func held(t testing.TB, s joblease.Store, name string) *joblease.HeldError {
	t.Helper()
	_, err := s.Acquire(bounded(t), claim(name, long, joblease.TakeExpired))
	var h *joblease.HeldError
	require.ErrorAs(t, err, &h)
	return h
}

// undecided requires an error by which a caller neither waits nor stops.
func undecided(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, joblease.ErrHeld)
	require.NotErrorIs(t, err, joblease.ErrLost)
}

// begin starts a transaction on a session of its own, which ends with the test.
func begin(t testing.TB, db *pgtest.DB, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := db.Conn(t).BeginTx(bounded(t), opts)
	require.NoError(t, err)
	return tx
}

// lockRow locks a row until the transaction or the test ends.
func lockRow(t testing.TB, db *pgtest.DB, name string) pgx.Tx {
	t.Helper()
	tx := begin(t, db, pgx.TxOptions{})
	exec(t, tx, "SELECT FROM "+migrations.Table+" WHERE name = $1 FOR UPDATE", name)
	return tx
}

func exec(t testing.TB, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	_, err := tx.Exec(bounded(t), sql, args...)
	require.NoError(t, err)
}

// lockWaiters returns how many sessions wait for a lock.
func lockWaiters(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.Scan[int](t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

func awaitLockWaiters(t testing.TB, db *pgtest.DB, n int) {
	t.Helper()
	eventually(t, "sessions wait for the lock", func() bool { return lockWaiters(t, db) == n })
}

// row returns all that there is of a row, also what only the server sees: which
// transactions wrote and locked it, and where it is.
func row(t testing.TB, db *pgtest.DB, name string) string {
	t.Helper()
	return pgtest.Scan[string](t, db, "SELECT concat_ws(' ', xmin, xmax, ctid, row_to_json(l)::text) FROM "+
		migrations.Table+" AS l WHERE name = $1", name)
}

// nextXID is the transaction id that the next writing transaction gets.
const nextXID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
