// Package database opens the store of an example that runs on SQLite as well as
// on PostgreSQL. A service has one of the two and writes its half of this.
package database

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/pgstore"
	"github.com/joblease/joblease/sqlstore"
	_ "modernc.org/sqlite" // the driver; sqlstore works with others too
)

// IsPostgres reports whether where is the URL of a PostgreSQL database. If not,
// it is the path of a SQLite file.
func IsPostgres(where string) bool {
	return strings.HasPrefix(where, "postgres://") || strings.HasPrefix(where, "postgresql://")
}

// Open returns a store that is ready for leases, in that table, or in the usual
// one if table is empty. The caller calls done when the leases have ended.
func Open(ctx context.Context, where, table string) (store joblease.Store, done func(), err error) {
	if IsPostgres(where) {
		return openPostgres(ctx, where, table)
	}
	return openSQLite(ctx, where, table)
}

func openPostgres(ctx context.Context, where, table string) (joblease.Store, func(), error) {
	pool, err := pgxpool.New(ctx, where)
	if err != nil {
		return nil, nil, err
	}
	store, err := pgstore.New(pool, pgstore.Options{Table: table})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	done := func() {
		store.Close()
		pool.Close()
	}
	if err := store.Migrate(ctx); err != nil {
		done()
		return nil, nil, err
	}
	return store, done, nil
}

// File opens a SQLite file in the way that leases, and an application beside them,
// need it.
func File(path string) (*sql.DB, error) {
	// WAL, so that the application's readers do not hold up renewals. A file is
	// switched to it once, and that wants the file for itself: whoever comes at
	// the same moment waits instead of failing.
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path,
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"}
	return sql.Open("sqlite", dsn.String())
}

func openSQLite(ctx context.Context, path, table string) (joblease.Store, func(), error) {
	db, err := File(path)
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.NewSQLite(db, sqlstore.Options{Table: table})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	done := func() {
		store.Close()
		db.Close() //nolint:errcheck // nothing is left to be written
	}
	if err := store.Migrate(ctx); err != nil {
		done()
		return nil, nil, err
	}
	return store, done, nil
}
