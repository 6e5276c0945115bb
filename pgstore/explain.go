package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/joblease/joblease"
)

// The codes of PostgreSQL's errors that need an answer of their own, by their
// names in the manual's Appendix A.
const (
	numericValueOutOfRange = "22003"
	readOnlySQLTransaction = "25006"
	invalidSchemaName      = "3F000"
	serializationFailure   = "40001"
	deadlockDetected       = "40P01"
	insufficientPrivilege  = "42501"
	undefinedColumn        = "42703"
	datatypeMismatch       = "42804"
	undefinedFunction      = "42883"
	undefinedTable         = "42P01"
	invalidColumnReference = "42P10" // no unique constraint matches ON CONFLICT
	wrongObjectType        = "42809"
	lockNotAvailable       = "55P03"
	queryCanceled          = "57014"
	uniqueViolation        = "23505"
	duplicateTable         = "42P07"
	duplicateObject        = "42710"
)

// code returns the code of the server's answer to a statement, and empty for
// every other error, also for that of a connection that could not be made: what
// is missing there is not the table.
func code(err error) string {
	var connecting *pgconn.ConnectError
	var answer *pgconn.PgError
	if errors.As(err, &connecting) || !errors.As(err, &answer) {
		return ""
	}
	return answer.Code
}

// isRetryable reports whether the server undid a statement because of what
// others did at the same time.
func isRetryable(err error) bool {
	c := code(err)
	return c == serializationFailure || c == deadlockDetected
}

func isReadOnly(err error) bool { return code(err) == readOnlySQLTransaction }

// explain makes an error of the server one that says what to do.
func (s *Store) explain(cmd command, err error) error {
	switch code(err) {
	case undefinedTable, invalidSchemaName:
		return s.missingTable(err)
	case insufficientPrivilege:
		return s.missingPrivilege(err)
	case readOnlySQLTransaction:
		return readOnly(err)
	case undefinedColumn, datatypeMismatch, undefinedFunction, invalidColumnReference, wrongObjectType:
		return &joblease.SetupError{
			Problem: fmt.Sprintf("table %s is not as this version needs it", s.table),
			Remedy:  "call Store.Check, which says what is different, and Store.Migrate",
			Err:     err,
		}
	case numericValueOutOfRange:
		return fmt.Errorf("joblease: %s %q: its token or version is at the maximum and cannot grow: %w",
			cmd.op, cmd.name, err)
	case queryCanceled, lockNotAvailable:
		return fmt.Errorf("joblease: %s: no answer in time, the row may be locked: %w", cmd, err)
	}
	return fmt.Errorf("joblease: %s: %w", cmd, err)
}

// String names the operation and the lease.
func (c command) String() string {
	if c.name == "" {
		return c.op
	}
	return fmt.Sprintf("%s %q", c.op, c.name)
}

func (s *Store) missingTable(err error) error {
	return &joblease.SetupError{
		Problem: fmt.Sprintf("table %s does not exist", s.table),
		Remedy:  "call Store.Migrate, or run the files in migrations/postgres",
		Err:     err,
	}
}

func (s *Store) missingPrivilege(err error) error {
	return &joblease.SetupError{
		Problem: fmt.Sprintf("the database user lacks privileges on table %s", s.table),
		Remedy: fmt.Sprintf("run GRANT SELECT, INSERT, UPDATE ON %s TO %s, and GRANT USAGE on its schema",
			s.table, quote(s.user)),
		Err: err,
	}
}

func readOnly(err error) error {
	return &joblease.SetupError{
		Problem: "the server is read-only: a standby, or default_transaction_read_only is on",
		Remedy:  "connect to the primary; with several hosts in the URL, add target_session_attrs=read-write",
		Err:     err,
	}
}
