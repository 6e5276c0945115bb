package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/joblease/joblease"
)

// columns of the table, in the order of the migration, with their types as
// format_type names them.
var columns = []struct{ name, typ string }{
	{"name", "text"},
	{"holder", "text"},
	{"claim", "uuid"},
	{"token", "bigint"},
	{"version", "bigint"},
	{"ttl", "interval"},
	{"acquired_at", "timestamp with time zone"},
	{"renewed_at", "timestamp with time zone"},
	{"expires_at", "timestamp with time zone"},
	{"tick", "timestamp with time zone"},
	{"tick_done", "boolean"},
}

// Check tells whether the database is set up for leases. It returns nil, or the
// *[joblease.SetupError] that says what is wrong and what to do, or several of
// them joined, or another error if the database did not answer. It writes
// nothing.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	r, err := s.call(ctx, command{op: "check", sql: s.sql.check, again: true, args: [][]byte{[]byte(s.table)}})
	if err != nil {
		return err
	}
	return s.judge(r)
}

// judge reads the answer of check.sql.
func (s *Store) judge(r *pgconn.Result) error {
	if len(r.Rows) != 1 {
		return fmt.Errorf("joblease: check: %d rows instead of 1", len(r.Rows))
	}
	d := decoder{row: r.Rows[0]}
	var (
		recovery, readonly      = d.boolean(), d.boolean()
		user, kind, persistence = d.text(), d.text(), d.text()
		can                     = [3]bool{d.boolean(), d.boolean(), d.boolean()}
		unique                  = d.boolean()
		types                   = d.text()
	)
	if d.err != nil {
		return fmt.Errorf("joblease: check: %w", d.err)
	}
	var problems []error
	problem := func(remedy, format string, args ...any) {
		problems = append(problems, &joblease.SetupError{Problem: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if recovery || readonly {
		problems = append(problems, readOnly(nil))
	}
	if kind == "" {
		return joined(append(problems, s.missingTable(nil)))
	}
	if kind != "r" {
		problem("drop or rename it, and call Store.Migrate", "%s is not a plain table", s.table)
		return joined(problems)
	}
	if persistence != "p" {
		problem(fmt.Sprintf("run ALTER TABLE %s SET LOGGED", s.table),
			"table %s is unlogged or temporary: it is empty after a crash, and two replicas could hold one lease", s.table)
	}
	if !unique {
		problem(fmt.Sprintf("run ALTER TABLE %s ADD PRIMARY KEY (name)", s.table),
			"table %s has no primary key on name: two replicas could each have a row", s.table)
	}
	have := map[string]string{}
	if types != "" {
		if err := json.Unmarshal([]byte(types), &have); err != nil {
			return fmt.Errorf("joblease: check: %w", err)
		}
	}
	for _, c := range columns {
		switch typ, ok := have[c.name]; {
		case !ok:
			problem("call Store.Migrate; if that does not mend it the table is not this library's, and Options.Table can name another",
				"table %s has no column %s: it is of another version", s.table, c.name)
		case typ != c.typ:
			problem(fmt.Sprintf("run ALTER TABLE %s ALTER COLUMN %s TYPE %s", s.table, c.name, c.typ),
				"column %s of table %s is %s instead of %s", c.name, s.table, typ, c.typ)
		}
	}
	var missing []string
	for i, name := range []string{"SELECT", "INSERT", "UPDATE"} {
		if !can[i] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, ", ")
		problem(fmt.Sprintf("run GRANT %s ON %s TO %s", list, s.table, quote(user)),
			"the database user %s lacks privileges on table %s: %s", user, s.table, list)
	}
	return joined(problems)
}

// joined returns nil for no errors and a single one as it is.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
