package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
	"github.com/joblease/joblease/storetest"
)

// Two things may make a difference: whose the connections are, and the isolation
// level that a service has made its default. They do not depend on each other.
func TestStoreKeepsTheContract(t *testing.T) {
	for _, c := range []struct {
		opts      pgstore.Options
		isolation string
	}{
		{pgstore.Options{}, "read committed"},
		{pgstore.Options{SharePool: true}, "repeatable read"},
		{pgstore.Options{}, "serializable"},
	} {
		t.Run(c.isolation, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, backend(c.opts, c.isolation))
		})
	}
}

// backend returns what opens a database for each check of the suite.
func backend(opts pgstore.Options, isolation string) func(*testing.T) storetest.Backend {
	return func(t *testing.T) storetest.Backend {
		db := pgtest.New(t)
		db.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = '%s'", db.Name, isolation))
		on := func(db *pgtest.DB, opts pgstore.Options) joblease.Store {
			s := open(t, db.Pool(t), opts)
			require.NoError(t, s.Migrate(bounded(t)))
			return s
		}
		return storetest.Backend{
			Open: func() joblease.Store { return on(db, opts) },
			Elsewhere: func() []joblease.Store {
				db.Exec(t, "CREATE SCHEMA elsewhere")
				table, schema := opts, opts
				table.Table, schema.Schema = "elsewhere", "elsewhere"
				return []joblease.Store{on(db, table), on(db, schema), on(pgtest.New(t), opts)}
			},
			Delete: func(name string) {
				db.Exec(t, "DELETE FROM "+migrations.Table+" WHERE name = $1", name)
			},
			SetToken: func(name string, token int64) {
				db.Exec(t, "UPDATE "+migrations.Table+" SET token = $2 WHERE name = $1", name, token)
			},
			Lock: func(name string) func() {
				tx := lockRow(t, db, name)
				return func() { require.NoError(t, tx.Rollback(context.Background())) }
			},
		}
	}
}
