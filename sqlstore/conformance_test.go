package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// fileModes are the settings of files that the whole contract is tested with.
var fileModes = map[string]string{
	"WAL, and a busy_timeout of the caller's": wal + "&_pragma=busy_timeout(60000)&_pragma=synchronous(OFF)",
	rollbackMode: rollback + "&_pragma=synchronous(OFF)",
}

const rollbackMode = "rollback journal"

// A file is shared by handles with connections of their own, as processes have
// them; a database in memory by stores on its one connection.
func TestTheContractHolds(t *testing.T) {
	for name, params := range fileModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			storetest.Run(t, func(t *testing.T) storetest.Backend {
				path := newFile(t)
				db := open(t, path, params)
				b := backend(t, db)
				b.Open = func() joblease.Store { return bareStore(t, open(t, path, params)) }
				b.Elsewhere = func() []joblease.Store {
					table, err := sqlstore.NewSQLite(db, sqlstore.Options{Table: `other "table"`})
					require.NoError(t, err)
					require.NoError(t, table.Migrate(t.Context()))
					return []joblease.Store{table, newStore(t, open(t, newFile(t), params))}
				}
				// Any writer locks every row, so that an acquire cannot tell a fence
				// from another writer, and waits.
				b.Lock = func(string) func() { return lock(t, db) }
				b.LocksTable = true
				return b
			})
		})
	}
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T) storetest.Backend {
			db := open(t, ":memory:", "")
			db.SetMaxOpenConns(1)
			b := backend(t, db)
			b.Open = func() joblease.Store { return bareStore(t, db) }
			return b
		})
	})
}

// backend makes an empty lease table in db.
func backend(t *testing.T, db *sql.DB) storetest.Backend {
	newStore(t, db)
	return storetest.Backend{
		Delete: func(name string) { exec(t, db, "DELETE FROM joblease_leases WHERE name = ?", name) },
		SetToken: func(name string, token int64) {
			exec(t, db, "UPDATE joblease_leases SET token = ? WHERE name = ?", token, name)
		},
	}
}
