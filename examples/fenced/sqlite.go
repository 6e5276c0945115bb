package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/examples/internal/database"
	"github.com/joblease/joblease/sqlstore"
)

// sqliteBooks are in the file that the leases are in: the fence needs both in one.
type sqliteBooks struct {
	options
	db    *sql.DB
	store *sqlstore.SQLite
}

func openSQLite(_ context.Context, o options) (books, error) {
	db, err := database.File(o.database)
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.NewSQLite(db, sqlstore.Options{Table: o.table})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &sqliteBooks{o, db, store}, nil
}

func (b *sqliteBooks) book(ctx context.Context, g joblease.Grant, by string) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	// First of all: from here until the commit nobody can take the lease over. A
	// process that is frozen here holds up all that write to the file, so nothing
	// that takes long is done inside.
	if !b.unfenced {
		if err := b.store.Fence(ctx, tx, g); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO "`+b.payments()+`" VALUES (?)`, by); err != nil {
		return err
	}
	return tx.Commit()
}

func (b *sqliteBooks) booked(ctx context.Context) (by []string, err error) {
	rows, err := b.db.QueryContext(ctx, `SELECT booked_by FROM "`+b.payments()+`"`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		by = append(by, name)
	}
	return by, rows.Err()
}

func (b *sqliteBooks) create(ctx context.Context) error {
	_, err := b.db.ExecContext(ctx, `CREATE TABLE "`+b.payments()+`" (booked_by TEXT NOT NULL)`)
	return err
}

func (b *sqliteBooks) leases() joblease.Store { return b.store }

func (b *sqliteBooks) close() {
	b.store.Close()
	b.db.Close() //nolint:errcheck // nothing is left to be written
}
