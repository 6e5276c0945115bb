package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"
)

// TestMain lets the binary be a process of its own: the tests with several
// processes start it again with roleEnv set.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const roleEnv = "JOBLEASE_TEST_ROLE"

// roles are what the binary can be.
var roles = map[string]func() error{}

const (
	wal      = "?_pragma=journal_mode(WAL)"
	rollback = "?_pragma=journal_mode(DELETE)"
	// long is a TTL that outlives every test.
	long = time.Hour
	// short is a TTL that is waited for.
	short = joblease.MinTTL
)

// newFile returns the path of a database that does not exist yet.
func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "app.db") }

// open opens a database, as one process of the application would.
func open(t testing.TB, path, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+params)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newStore returns a store on db with a lease table.
func newStore(t testing.TB, db *sql.DB) *sqlstore.SQLite {
	t.Helper()
	s := bareStore(t, db)
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// bareStore returns a store on db as it is.
func bareStore(t testing.TB, db *sql.DB) *sqlstore.SQLite {
	t.Helper()
	s, err := sqlstore.NewSQLite(db, sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// claim returns a claim that takes what has expired.
func claim(name string, ttl time.Duration) joblease.Claim {
	return joblease.Claim{Name: name, ID: joblease.NewClaimID(), Holder: "replica", TTL: ttl,
		Takeover: joblease.Takeover{Rule: joblease.TakeExpired}}
}

func mustAcquire(t testing.TB, s joblease.Store, c joblease.Claim) joblease.Grant {
	t.Helper()
	g, err := s.Acquire(within(t, 10*time.Second), c)
	require.NoError(t, err)
	return g
}

// within returns a context that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// lock takes the write lock of db's file, and returns what gives it up.
func lock(t testing.TB, db *sql.DB) (unlock func()) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		return err == nil
	}, 10*time.Second, time.Millisecond)
	done := false
	unlock = func() {
		if !done {
			done = true
			_, err := conn.ExecContext(context.Background(), "ROLLBACK")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
	}
	t.Cleanup(unlock)
	return unlock
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

// value returns the only value that query selects.
func value[T any](t testing.TB, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&v))
	return v
}
