package databases_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	migratedriver "github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/migrations"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
)

// kinds are the databases that there are files for.
var kinds = []struct {
	name    string
	make    func(testing.TB) database
	files   func() fs.FS
	dialect goose.Dialect
}{
	{"PostgreSQL", postgres, migrations.Postgres, goose.DialectPostgres},
	{"SQLite", sqlite, migrations.SQLite, goose.DialectSQLite3},
}

func TestGooseRunsTheFilesAsTheyAre(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			d := kind.make(t)
			require.ErrorAs(t, d.store.Check(bounded(t)), new(*joblease.SetupError), "there is nothing yet")
			p, err := goose.NewProvider(kind.dialect, d.db, kind.files())
			require.NoError(t, err)
			done, err := p.Up(bounded(t))
			require.NoError(t, err)
			require.NotEmpty(t, done)
			for _, r := range done {
				require.False(t, r.Empty, "%s holds no statement for goose", r.Source.Path)
			}
			d.requireReady(t)

			before := d.definitions(t)
			done, err = p.Up(bounded(t))
			require.NoError(t, err)
			require.Empty(t, done, "up again does nothing")
			require.Equal(t, before, d.definitions(t))
		})
	}
}

// newMigrate returns golang-migrate on the database, which it closes.
func newMigrate(t testing.TB, d database, files fs.FS) *migrate.Migrate {
	t.Helper()
	source, err := iofs.New(files, ".")
	require.NoError(t, err)
	db := open(t, d.driver, d.url)
	var driver migratedriver.Driver
	if d.driver == "pgx" {
		driver, err = migratepgx.WithInstance(db, &migratepgx.Config{})
	} else {
		driver, err = migratesqlite.WithInstance(db, &migratesqlite.Config{})
	}
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", source, d.driver, driver)
	require.NoError(t, err)
	t.Cleanup(func() {
		sourceErr, dbErr := m.Close()
		require.NoError(t, errors.Join(sourceErr, dbErr))
	})
	return m
}

func TestGolangMigrateRunsTheFilesAsTheyAre(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			d := kind.make(t)
			m := newMigrate(t, d, kind.files())
			require.NoError(t, m.Up())
			version, dirty, err := m.Version()
			require.NoError(t, err)
			require.False(t, dirty)
			names, err := fs.Glob(kind.files(), "*.up.sql")
			require.NoError(t, err)
			require.EqualValues(t, len(names), version, "all files are known")
			d.requireReady(t)

			before := d.definitions(t)
			require.ErrorIs(t, m.Up(), migrate.ErrNoChange)
			require.Equal(t, before, d.definitions(t))
		})
	}
}

// A service may call Migrate for years and then get a tool for its schema, or
// change from one tool to the other.
func TestTheFilesRunOnATableThatIsThereAlready(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			d := kind.make(t)
			require.NoError(t, d.store.Migrate(bounded(t)))
			l, err := joblease.New(d.store, "old", quiet(0))
			require.NoError(t, err)
			g, err := l.TryAcquire(bounded(t))
			require.NoError(t, err)

			p, err := goose.NewProvider(kind.dialect, d.db, kind.files())
			require.NoError(t, err)
			_, err = p.Up(bounded(t))
			require.NoError(t, err)
			require.NoError(t, newMigrate(t, d, kind.files()).Up())
			require.NoError(t, l.Renew(bounded(t)), "the lease of token %d goes on", g.Token)
			d.requireReady(t)
			require.NoError(t, l.Release(bounded(t)))
		})
	}
}
