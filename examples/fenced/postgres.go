package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/pgstore"
)

// postgresBooks are in the database that the leases are in: the fence needs both
// in one.
type postgresBooks struct {
	options
	pool  *pgxpool.Pool
	store *pgstore.Store
}

func openPostgres(ctx context.Context, o options) (books, error) {
	pool, err := pgxpool.New(ctx, o.database)
	if err != nil {
		return nil, err
	}
	store, err := pgstore.New(pool, pgstore.Options{Table: o.table})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgresBooks{o, pool, store}, nil
}

func (b *postgresBooks) book(ctx context.Context, g joblease.Grant, by string) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		// First of all: from here until the commit nobody can take the lease over.
		if !b.unfenced {
			if err := b.store.Fence(ctx, tx, g); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO `+b.quoted()+` VALUES ($1)`, by)
		return err
	})
}

func (b *postgresBooks) booked(ctx context.Context) ([]string, error) {
	rows, err := b.pool.Query(ctx, `SELECT booked_by FROM `+b.quoted())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (b *postgresBooks) create(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, `CREATE TABLE `+b.quoted()+` (booked_by text NOT NULL)`)
	return err
}

func (b *postgresBooks) quoted() string { return pgx.Identifier{b.payments()}.Sanitize() }

func (b *postgresBooks) leases() joblease.Store { return b.store }

func (b *postgresBooks) close() {
	b.store.Close()
	b.pool.Close()
}
