package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
	"github.com/joblease/joblease/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, backend(pgstore.Options{}, ""))
}

func TestStoreKeepsTheContractOnTheCallersPool(t *testing.T) {
	storetest.Run(t, backend(pgstore.Options{SharePool: true}, ""))
}

// A service may have made another isolation level its default. The errors that
// this brings are the store's to handle.
func TestStoreKeepsTheContractInEveryIsolationLevel(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			storetest.Run(t, backend(pgstore.Options{}, level))
		})
	}
}

// backend returns what opens a database for each check of the suite.
func backend(opts pgstore.Options, isolation string) func(*testing.T) storetest.Backend {
	return func(t *testing.T) storetest.Backend {
		db := pgtest.New(t)
		if isolation != "" {
			db.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = %s",
				pgx.Identifier{db.Name}.Sanitize(), pgx.Identifier{isolation}.Sanitize()))
		}
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
