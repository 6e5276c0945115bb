package sqlstore_test

import (
	"testing"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// A file is shared by handles with connections of their own, as processes have
// them; a database in memory by stores on its one connection.
//
// The suite's Lock is left out: SQLite locks the file and no row, so an acquire
// cannot tell a fence from any other writer, and waits. See lock_test.go.
func TestTheContractHolds(t *testing.T) {
	for _, mode := range []struct{ name, params string }{
		{"WAL", wal},
		{"rollback journal", rollback},
		{"a busy_timeout of the caller's", wal + "&_pragma=busy_timeout(60000)"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			storetest.Run(t, func(t *testing.T) storetest.Backend {
				path := newFile(t)
				db := open(t, path, mode.params)
				newStore(t, db)
				return storetest.Backend{
					Open: func() joblease.Store { return bareStore(t, open(t, path, mode.params)) },
					Elsewhere: func() []joblease.Store {
						table, err := sqlstore.NewSQLite(db, sqlstore.Options{Table: `other "table"`})
						require.NoError(t, err)
						require.NoError(t, table.Migrate(t.Context()))
						return []joblease.Store{table, newStore(t, open(t, newFile(t), mode.params))}
					},
					Delete: func(name string) {
						exec(t, db, "DELETE FROM joblease_leases WHERE name = ?", name)
					},
					SetToken: func(name string, token int64) {
						exec(t, db, "UPDATE joblease_leases SET token = ? WHERE name = ?", token, name)
					},
				}
			})
		})
	}
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T) storetest.Backend {
			db := open(t, ":memory:", "")
			db.SetMaxOpenConns(1)
			newStore(t, db)
			return storetest.Backend{Open: func() joblease.Store { return bareStore(t, db) }}
		})
	})
}
