package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
)

func TestBadArgumentsAreNamed(t *testing.T) {
	db := open(t, ":memory:", "")
	for field, make := range map[string]func() error{
		"db":                         func() error { _, err := sqlstore.NewSQLite(nil, sqlstore.Options{}); return err },
		"Table, a zero byte":         func() error { _, err := sqlstore.NewSQLite(db, sqlstore.Options{Table: "a\x00b"}); return err },
		"Table, reserved for SQLite": func() error { _, err := sqlstore.NewSQLite(db, sqlstore.Options{Table: "SQLite_x"}); return err },
	} {
		var config *joblease.ConfigError
		require.ErrorAs(t, make(), &config, field)
		require.Contains(t, field, config.Field)
	}
	require.Zero(t, db.Stats().OpenConnections, "a constructor does no I/O")
}

// calls are all that need the table.
func calls(s *sqlstore.SQLite, g joblease.Grant) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, claim("job", long)); return err },
		"renew":   func(ctx context.Context) error { return s.Renew(ctx, g) },
		"release": func(ctx context.Context) error { return s.Release(ctx, g) },
		"list":    func(ctx context.Context) error { _, err := s.List(ctx); return err },
		"check":   s.Check,
	}
}

// requireSetup requires a SetupError with text in it, which is neither decision.
func requireSetup(t *testing.T, err error, text string) {
	t.Helper()
	var setup *joblease.SetupError
	require.ErrorAs(t, err, &setup)
	require.ErrorContains(t, setup, text)
	require.NotEmpty(t, setup.Remedy)
	require.NotErrorIs(t, err, joblease.ErrHeld)
	require.NotErrorIs(t, err, joblease.ErrLost)
}

func TestAMissingTableIsReportedUntilItIsThere(t *testing.T) {
	for name, params := range map[string]string{"WAL": wal, "rollback journal": rollback} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			db := open(t, path, params)
			s := bareStore(t, open(t, path, params))
			for range 3 { // made, dropped and made again under connections that know the table
				for what, call := range calls(s, joblease.Grant{Name: "job", Claim: joblease.NewClaimID()}) {
					t.Log(what)
					requireSetup(t, call(t.Context()), "call Migrate")
				}
				newStore(t, db)
				require.EqualValues(t, 1, mustAcquire(t, s, claim("job", long)).Token)
				exec(t, db, "DROP TABLE joblease_leases")
			}
		})
	}
}

func TestAReadOnlyDatabaseIsReportedUntilItIsWritable(t *testing.T) {
	for name, params := range map[string]string{"mode=ro": "?mode=ro", "query_only": "?_pragma=query_only(1)"} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			g := mustAcquire(t, newStore(t, open(t, path, wal)), claim("held", long))
			s := bareStore(t, open(t, path, params))
			for what, call := range calls(s, g) {
				if what == "list" {
					require.NoError(t, call(t.Context()))
					continue
				}
				requireSetup(t, call(t.Context()), "read-only")
			}
			_, err := s.Acquire(t.Context(), claim("held", long))
			require.ErrorIs(t, err, joblease.ErrHeld, "a refusal only reads")
			requireSetup(t, bareStore(t, open(t, newFile(t), "?_pragma=query_only(1)")).Migrate(t.Context()), "read-only")
		})
	}
	db := open(t, newFile(t), wal)
	db.SetMaxOpenConns(1)
	s := newStore(t, db)
	exec(t, db, "PRAGMA query_only = 1")
	_, err := s.Acquire(t.Context(), claim("job", long))
	requireSetup(t, err, "read-only")
	exec(t, db, "PRAGMA query_only = 0")
	mustAcquire(t, s, claim("job", long))
}

func TestAReplacedFileIsOpenedAnew(t *testing.T) {
	path := newFile(t)
	db := open(t, path, rollback)
	db.SetMaxOpenConns(1)
	s := newStore(t, db)
	g := mustAcquire(t, s, claim("job", long))
	require.NoError(t, os.Remove(path))
	newStore(t, open(t, path, rollback))
	requireSetup(t, s.Renew(t.Context(), g), "moved or deleted")
	require.ErrorIs(t, s.Renew(t.Context(), g), joblease.ErrLost, "the new file knows no such claim")
	mustAcquire(t, s, claim("job", long))
}

func TestCheckPassesWhatMigrateMade(t *testing.T) {
	require.NoError(t, newStore(t, open(t, newFile(t), wal)).Check(t.Context()))
	memory := open(t, ":memory:", "")
	memory.SetMaxOpenConns(1)
	require.NoError(t, newStore(t, memory).Check(t.Context()))
}

func TestATableOfAnotherVersionIsReported(t *testing.T) {
	made := open(t, newFile(t), wal)
	newStore(t, made)
	schema := value[string](t, made, "SELECT sql FROM sqlite_schema WHERE name = 'joblease_leases'")
	var names []string
	rows, err := made.QueryContext(t.Context(), "SELECT name FROM pragma_table_info('joblease_leases') WHERE pk = 0")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, names)

	check := func(change func(db *sql.DB)) error {
		db := open(t, newFile(t), wal)
		exec(t, db, schema)
		change(db)
		s := bareStore(t, db)
		err := s.Check(t.Context())
		require.Equal(t, err, s.Migrate(t.Context()), "Migrate leaves such a table alone, and says so")
		return err
	}
	for _, name := range names {
		t.Run("without "+name, func(t *testing.T) {
			requireSetup(t, check(func(db *sql.DB) {
				exec(t, db, "ALTER TABLE joblease_leases RENAME TO old")
				exec(t, db, "CREATE TABLE joblease_leases (name TEXT PRIMARY KEY) STRICT")
				for _, other := range names {
					if other != name {
						kind := value[string](t, db, "SELECT type FROM pragma_table_info('old') WHERE name = ?", other)
						exec(t, db, "ALTER TABLE joblease_leases ADD COLUMN "+other+" "+kind)
					}
				}
			}), "no column "+name)
		})
	}
	for name, c := range map[string]struct{ create, text string }{
		"not STRICT": {"CREATE TABLE joblease_leases (name TEXT PRIMARY KEY)", "STRICT"},
		"another type": {"CREATE TABLE joblease_leases (name TEXT PRIMARY KEY, token TEXT) STRICT",
			"token as TEXT, which must be INTEGER"},
		"no key": {"CREATE TABLE joblease_leases (name TEXT) STRICT", "primary key"},
		"a longer key": {"CREATE TABLE joblease_leases (name TEXT, token INTEGER, PRIMARY KEY (name, token)) STRICT",
			"primary key"},
		"a view": {"CREATE VIEW joblease_leases AS SELECT 1 AS name", "is not"},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(func(db *sql.DB) {
				exec(t, db, "DROP TABLE joblease_leases")
				exec(t, db, c.create)
			})
			requireSetup(t, err, c.text)
		})
	}
	t.Run("a call says so too", func(t *testing.T) {
		db := open(t, newFile(t), wal)
		exec(t, db, "CREATE TABLE joblease_leases (name TEXT PRIMARY KEY) STRICT")
		_, err := bareStore(t, db).Acquire(t.Context(), claim("job", long))
		requireSetup(t, err, "of another version")
	})
}

func TestCheckComplainsAboutAFileThatIsNotInWALMode(t *testing.T) {
	path := newFile(t)
	db := open(t, path, rollback)
	s := newStore(t, db)
	requireSetup(t, s.Check(t.Context()), `"delete"`)
	require.Equal(t, "delete", value[string](t, db, "PRAGMA journal_mode"), "the mode is the caller's")
	require.Equal(t, "wal", value[string](t, db, "PRAGMA journal_mode = WAL"))
	require.NoError(t, s.Check(t.Context()))
}

func TestCheckSaysNothingOfALockedDatabase(t *testing.T) {
	path := newFile(t)
	s := newStore(t, open(t, path, wal))
	lock(t, open(t, path, wal))
	err := s.Check(within(t, 50*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, errors.As(err, new(*joblease.SetupError)))
}

func TestMigrateDoesNotWaitForAWriterWhenTheTableExists(t *testing.T) {
	path := newFile(t)
	s := newStore(t, open(t, path, wal))
	lock(t, open(t, path, wal))
	require.NoError(t, s.Migrate(within(t, 10*time.Second)))
}

func TestTheMigrationFilesMakeTheSameTable(t *testing.T) {
	db := open(t, newFile(t), wal)
	statements, err := migrations.Statements(migrations.SQLite(), migrations.Table)
	require.NoError(t, err)
	for _, text := range statements {
		exec(t, db, text)
	}
	s := bareStore(t, db)
	require.NoError(t, s.Check(t.Context()))
	require.NoError(t, s.Migrate(t.Context()))
}

func TestAVersionAtItsMaximumIsAnErrorAndNeverWraps(t *testing.T) {
	db := open(t, newFile(t), wal)
	s := newStore(t, db)
	g := mustAcquire(t, s, claim("job", long))
	exec(t, db, "UPDATE joblease_leases SET version = ?", int64(math.MaxInt64))
	before := row(t, s)
	for what, err := range map[string]error{"renew": s.Renew(t.Context(), g), "release": s.Release(t.Context(), g)} {
		require.ErrorContains(t, err, "maximum", what)
		require.NotErrorIs(t, err, joblease.ErrLost, what)
	}
	after := row(t, s)
	before.Remaining, after.Remaining = 0, 0
	require.Equal(t, before, after)
	require.Equal(t, "integer", value[string](t, db, "SELECT typeof(version) FROM joblease_leases"))
}
