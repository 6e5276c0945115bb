package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/joblease/joblease"
)

// Migrate creates the lease table if there is none. Any number of processes may
// call it at once, and at each start: when the table exists it only reads. It
// changes nothing else in the database, so the journal mode stays what it is.
// The error is a *[joblease.SetupError] if the database is read-only, or if there
// is a table of that name which is not what the store needs.
func (s *SQLite) Migrate(ctx context.Context) error {
	_, err := call(ctx, s, func(ctx context.Context, conn *sql.Conn) (struct{}, error) {
		for _, ddl := range s.ddl {
			// CREATE TABLE IF NOT EXISTS needs no transaction around it. Should
			// another process have created the table since the statement was
			// compiled, SQLite sees under the write lock that the schema has
			// changed, and compiles it again.
			if _, err := conn.ExecContext(ctx, ddl); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, s.checkTable(ctx, conn, nil)
	})
	return failed("migrate", s.table, err)
}

// Check reports what would keep leases from working, as a *[joblease.SetupError]
// that says what to do: the table is missing, its columns are not those of this
// version, or the database is read-only. Its last finding is a file that is not
// in WAL mode: the leases are right in any mode, but in the others each reader of
// the application holds up the renewals.
//
// Check writes nothing, but takes the write lock for a moment, to see whether it
// can. Another error means that nothing is known.
func (s *SQLite) Check(ctx context.Context) error {
	_, err := call(ctx, s, func(ctx context.Context, conn *sql.Conn) (struct{}, error) {
		if err := s.checkTable(ctx, conn, nil); err != nil {
			return struct{}{}, err
		}
		// No lease has an empty name.
		_, err := conn.ExecContext(ctx, s.query["fence"], sql.Named("name", ""), sql.Named("claim", nil))
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, checkJournal(ctx, conn)
	})
	return failed("check", s.table, err)
}

// columns are those of the table, with their types. See migrations/sqlite.
var columns = map[string]string{
	"name": "TEXT", "holder": "TEXT", "claim": "BLOB", "token": "INTEGER", "version": "INTEGER", "ttl_us": "INTEGER",
	"acquired_at_us": "INTEGER", "renewed_at_us": "INTEGER", "expires_at_us": "INTEGER",
	"tick_us": "INTEGER", "tick_done": "INTEGER",
}

// checkTable compares the table with what the statements need. The cause is what
// made the caller look, or nil.
func (s *SQLite) checkTable(ctx context.Context, on session, cause error) error {
	const remedy = "rename it, let Migrate create the table, and copy the tokens over if something compares them"
	wrong := func(remedy, format string, args ...any) error {
		return &joblease.SetupError{Problem: fmt.Sprintf("the table %q ", s.table) + fmt.Sprintf(format, args...),
			Remedy: remedy, Err: cause}
	}
	missing := map[string]string{}
	for name, kind := range columns {
		missing[name] = kind
	}
	var problem error
	found := false
	err := each(ctx, on, s.query["columns"], []any{sql.Named("table", s.table)}, func(row *sql.Rows) error {
		var name, kind string
		var strict bool
		var pk int
		if err := row.Scan(&strict, &name, &kind, &pk); err != nil {
			return err
		}
		found = true
		want, known := columns[name]
		delete(missing, name)
		switch {
		case problem != nil:
		case !strict:
			problem = wrong(remedy, "is not STRICT, so that a token could become a floating-point number")
		case known && !strings.EqualFold(kind, want):
			problem = wrong(remedy, "has the column %s as %s, which must be %s", name, kind, want)
		case known && (pk > 0) != (name == "name"):
			problem = wrong(remedy, "must have name, and no other column, as its primary key")
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !found:
		return wrong("call Migrate, or run the files of the package joblease/migrations", "does not exist")
	case problem != nil:
		return problem
	}
	for name := range missing {
		return wrong(remedy, "is of another version: it has no column %s", name)
	}
	return nil
}

// checkJournal complains about a file that is not in WAL mode. A database in
// memory has no file, and no other process.
func checkJournal(ctx context.Context, conn *sql.Conn) error {
	var mode, file string
	err := conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file)
	if err != nil || file == "" {
		return err
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if strings.EqualFold(mode, "wal") {
		return nil
	}
	return &joblease.SetupError{
		Problem: fmt.Sprintf("the journal mode of %s is %q, in which every reader holds up the renewals", file, mode),
		Remedy:  "run PRAGMA journal_mode = WAL once, which the file remembers",
	}
}

// explain turns an error of the database's into a SetupError if that is what it
// comes from. It is told by result codes, and for a statement that SQLite could
// not compile by a look at the schema.
func (s *SQLite) explain(ctx context.Context, on session, err error) error {
	code := resultCode(err)
	switch {
	case code == codeMoved:
		return &joblease.SetupError{Problem: "the database file was moved or deleted while it was open",
			Remedy: "leave the file in its place while replicas run", Err: err}
	case code&0xff == codeReadOnly:
		return &joblease.SetupError{Problem: "the database is read-only",
			Remedy: "make the file and its directory writable for this user, and open it without mode=ro or query_only", Err: err}
	case code == codeDatatype:
		return fmt.Errorf("the token or the version of the row is at its maximum: %w", err)
	case code&0xff == codeError:
		if found := s.checkTable(ctx, on, err); errors.As(found, new(*joblease.SetupError)) {
			return found
		}
	}
	return err
}
