package pgtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is an empty database of its own for one test.
type DB struct {
	// URL connects to it as a superuser.
	URL string
	// Name of the database.
	Name string

	log func() (string, error)

	once  sync.Once
	admin *pgxpool.Pool // for the test's own statements
}

// New creates a database on the server of this test binary and drops it, with
// all sessions in it, when the test ends. It skips the test under -short, and
// fails it, saying what to do, if there is no server to be had.
func New(t testing.TB) *DB {
	t.Helper()
	skipShort(t)
	shared.once.Do(func() { shared.inst, shared.err = find() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return newDB(t, shared.inst, "")
}

func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a PostgreSQL server; not run with -short")
	}
}

func newDB(t testing.TB, inst *instance, name string) *DB {
	t.Helper()
	if name == "" {
		name = "t" + randomHex(6)
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if err := execute(inst.url, "CREATE DATABASE "+quoted); err != nil {
		t.Fatalf("pgtest: creating a database: %v", err)
	}
	db := &DB{URL: withDatabase(inst.url, name), Name: name, log: inst.log}
	t.Cleanup(func() {
		if db.admin != nil {
			db.admin.Close()
		}
		// A server that the test has stopped takes the database with it.
		if err := execute(inst.url, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)"); err != nil && !t.Failed() {
			t.Logf("pgtest: dropping database %s: %v", name, err)
		}
	})
	return db
}

// Config returns a new configuration for a pool on the database.
func (db *DB) Config(t testing.TB) *pgxpool.Config {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return cfg
}

// Pool returns a new pool on the database, closed when the test ends.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return NewPool(t, db.Config(t))
}

// NewPool returns a pool with that configuration, closed when the test ends.
func NewPool(t testing.TB, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Conn returns a new connection to the database, closed when the test ends.
func (db *DB) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		conn.Close(ctx) // fails if the test had the session ended
	})
	return conn
}

// Exec runs a statement and fails the test if it fails.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := db.pool(t).Exec(ctx, sql, args...); err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

// Scan returns the one value that a query answers with.
func Scan[T any](t testing.TB, db *DB, sql string, args ...any) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var v T
	if err := db.pool(t).QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
	return v
}

// adminName is the application_name of this package's own sessions, by which
// a test that counts sessions tells them from those of the code under test.
const adminName = "pgtest"

// Sessions returns how many sessions the database has, but for those of this
// package.
func (db *DB) Sessions(t testing.TB) int {
	t.Helper()
	return Scan[int](t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name <> $1`, adminName)
}

// pool is the pool for the test's own statements: small, kept for the whole
// test, and known by its name.
func (db *DB) pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	db.once.Do(func() {
		cfg := db.Config(t)
		cfg.MaxConns = 2
		cfg.ConnConfig.RuntimeParams["application_name"] = adminName
		// The test may have restarted the server.
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		db.admin = pool
	})
	return db.admin
}

// Log returns the lines that the server has logged for this database. It skips
// the test if the server's log cannot be read from here.
func (db *DB) Log(t testing.TB) []string {
	t.Helper()
	if db.log == nil {
		t.Skip("the log of this server cannot be read")
	}
	text, err := db.log()
	if err != nil {
		t.Fatalf("pgtest: reading the server's log: %v", err)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, logMark(db.Name)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// logPrefix makes every line of the server's log tell its database.
const logPrefix = "%m [%p] db=%d "

func logMark(database string) string { return "db=" + database + " " }
