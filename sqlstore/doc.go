// Package sqlstore keeps leases through database/sql, in SQLite.
//
// It imports no driver. It is tested with modernc.org/sqlite, and reads the
// result codes of that driver, github.com/mattn/go-sqlite3 and
// github.com/ncruces/go-sqlite3.
//
//	db, err := sql.Open("sqlite", "file:app.db?_pragma=journal_mode(WAL)")
//	…
//	store, err := sqlstore.NewSQLite(db, sqlstore.Options{})
//	…
//	defer store.Close()
//	err = store.Migrate(ctx)
//
// # What SQLite brings with it
//
// The replicas are processes on one machine that open one file. SQLite's locks
// do not work on most network file systems, and neither does a lease. The
// database's clock is the machine's, in milliseconds.
//
// SQLite lets one connection write at a time, whatever it writes. A transaction
// of the application that writes for longer than TTL - Margin keeps every lease
// in the file from being renewed, its own too, and so ends them. Keep write
// transactions short, or keep the leases in a file of their own and do without
// [SQLite.Fence]. A process that is stopped inside a write transaction, by a
// debugger or SIGSTOP, keeps the lock until it goes on or is killed, and no lease
// in the file changes hands before.
//
// In WAL mode readers and the writer do not wait for each other. In the other
// journal modes a reader holds up every commit. The leases are right in any
// mode; [SQLite.Check] says when a file is not in WAL mode. The store never
// changes the mode, since the application's backups may depend on it.
//
// With synchronous=NORMAL in WAL mode, a power failure may undo the last
// commits. No holder outlives that, but a token may be given out a second time.
// Use synchronous=FULL if something outside of the file compares tokens.
//
// Never replace or delete the file under running replicas: those that have the
// old one open go on with it, and with its leases.
package sqlstore
