package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/migrations"
)

// migrationLock serializes those who migrate. It is the first eight bytes of the
// SHA-256 of "joblease", so that it is nobody else's.
const migrationLock = 0x50814a2e536b34af

// Migrate creates the table if it is not there. Where [Store.Check]
// finds nothing wrong it writes nothing and needs no privilege to create
// anything, so every replica can call it at its start, at the same time; a table
// that another tool made from the files in package migrations is as good.
//
// It waits for others who migrate, until ctx ends, or for 30 s if ctx has no
// deadline. The errors are those of
// [Store.Check].
func (s *Store) Migrate(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	problem := s.Check(ctx)
	var setup *joblease.SetupError
	if problem == nil || !errors.As(problem, &setup) {
		return problem
	}
	texts, err := migrations.Statements(migrations.Postgres(), s.table)
	if err != nil {
		return fmt.Errorf("joblease: migrate: %w", err)
	}
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.bound, pgx.QueryExecModeExec, string(serverTimeout(ctx))); err != nil {
			return err
		}
		// CREATE … IF NOT EXISTS fails if another session creates the same at
		// the same time, so they come one after the other.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", pgx.QueryExecModeExec, int64(migrationLock)); err != nil {
			return err
		}
		for _, text := range texts {
			// A file has several statements, which only the simple protocol takes.
			if _, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil || isDuplicate(err) {
		// Another tool may have been at it, without the lock.
		return s.Check(ctx)
	}
	if code(err) == insufficientPrivilege {
		err = &joblease.SetupError{
			Problem: fmt.Sprintf("the database user may not create or alter table %s", s.table),
			Remedy: fmt.Sprintf("have a user who may create tables run the files in migrations/postgres of this module, and then run GRANT SELECT, INSERT, UPDATE ON %s TO %s",
				s.table, quote(s.user)),
			Err: err,
		}
	} else {
		err = fmt.Errorf("joblease: migrate: %w", err)
	}
	return errors.Join(err, problem)
}

func isDuplicate(err error) bool {
	switch code(err) {
	case duplicateTable, duplicateObject, uniqueViolation:
		return true
	}
	return false
}
