package databases_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 20 * time.Second

// quiet is a Config without log output.
func quiet(ttl time.Duration) joblease.Config {
	return joblease.Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)}
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until what nobody announces has come to pass.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "not within the test's patience: "+what)
		}
	}
}

// store is what both stores have.
type store interface {
	joblease.Store
	Check(context.Context) error
	Migrate(context.Context) error
}

// database is an empty database.
type database struct {
	driver, url string
	db          *sql.DB
	store       store
	// schema is a query for all that is defined in the database.
	schema string
}

func open(t testing.TB, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func postgres(t testing.TB) database {
	t.Helper()
	srv := pgtest.New(t)
	s, err := pgstore.New(srv.Pool(t), pgstore.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return database{driver: "pgx", url: srv.URL, db: open(t, "pgx", srv.URL), store: s, schema: `
		SELECT string_agg(concat_ws(' ', c.oid, c.relname, c.reloptions, a.attname, a.atttypid, a.attnotnull, a.xmin), '; '
			ORDER BY c.oid, a.attnum)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'public'::regnamespace`}
}

func sqlite(t testing.TB) database {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a database; not run with -short")
	}
	file := filepath.ToSlash(filepath.Join(t.TempDir(), "app.db"))
	db := open(t, "sqlite", "file:"+file+"?_pragma=journal_mode(WAL)")
	s, err := sqlstore.NewSQLite(db, sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return database{driver: "sqlite", url: file, db: db, store: s,
		schema: "SELECT group_concat(name || ' ' || sql, '; ') FROM sqlite_schema WHERE sql <> ''"}
}

// definitions returns all that is defined in the database.
func (d database) definitions(t testing.TB) (all string) {
	t.Helper()
	require.NoError(t, d.db.QueryRowContext(bounded(t), d.schema).Scan(&all))
	return all
}

// requireReady requires that leases work as they are, and that Migrate has
// nothing to do.
func (d database) requireReady(t testing.TB) {
	t.Helper()
	require.NoError(t, d.store.Check(bounded(t)))
	before := d.definitions(t)
	require.NoError(t, d.store.Migrate(bounded(t)))
	require.Equal(t, before, d.definitions(t), "Migrate changes nothing")

	l, err := joblease.New(d.store, "job", quiet(15*time.Second))
	require.NoError(t, err)
	for token := int64(1); token <= 2; token++ {
		err = l.Do(bounded(t), func(ctx context.Context) error {
			g, ok := joblease.GrantFrom(ctx)
			require.True(t, ok)
			require.Equal(t, token, g.Token)
			return l.Renew(ctx)
		})
		require.NoError(t, err)
	}
}
