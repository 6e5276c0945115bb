package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/migrations"
)

// Options are the choices that a store has. The zero value works.
type Options struct {
	// Table is the name of the lease table, any text without a zero byte. It is
	// quoted, so it is one name, not schema and name. Default [migrations.Table].
	Table string
}

// SQLite keeps leases in a table of a SQLite database. It is a [joblease.Store]
// and a [joblease.Watcher]. All methods are safe for concurrent use, by any
// number of stores and processes on the same file.
//
// Calls return soon after their context has ended, whatever the database is
// doing and whatever busy_timeout its connections have. While another connection
// holds the file's locks they try again; if it still does when the context ends,
// the error is the context's and the outcome is unknown. A call whose context
// never ends may wait for ever.
//
// A call takes a connection from the pool that the store was given and puts it
// back; none is held between calls. If the application uses up its pool, calls
// wait for it until their context ends: give the store a *sql.DB of its own on
// the same file then. With ":memory:", where a second *sql.DB is a second
// database, and SetMaxOpenConns(1), calls made while a transaction is open do
// just that.
//
// When the table is missing or is not what the store needs, or the database is
// read-only, the error is a *[joblease.SetupError]. Calls succeed again as soon
// as that is mended.
type SQLite struct {
	db    *sql.DB
	table string // as the caller named it
	query map[string]string
	ddl   []string
	slots chan struct{}

	watches watches
}

var (
	_ joblease.Store   = (*SQLite)(nil)
	_ joblease.Watcher = (*SQLite)(nil)
)

//go:embed sql/sqlite/*.sql
var files embed.FS

// NewSQLite returns a store on db, which must be a SQLite database, 3.38 or
// newer. It does no I/O. The error is a *[joblease.ConfigError] that names the
// argument. db stays the caller's: the store never closes it, and leaves its
// settings alone.
func NewSQLite(db *sql.DB, opts Options) (*SQLite, error) {
	if db == nil {
		return nil, &joblease.ConfigError{Field: "db", Value: "nil", Rule: "must be an open database"}
	}
	table := opts.Table
	if table == "" {
		table = migrations.Table
	}
	switch {
	case strings.ContainsRune(table, 0):
		return nil, &joblease.ConfigError{Field: "Table", Value: fmt.Sprintf("%q", table),
			Rule: "must not contain a zero byte"}
	case len(table) >= 7 && strings.EqualFold(table[:7], "sqlite_"):
		return nil, &joblease.ConfigError{Field: "Table", Value: fmt.Sprintf("%q", table),
			Rule: `must not begin with "sqlite_", which SQLite keeps for itself`}
	}
	quoted := `"` + strings.ReplaceAll(table, `"`, `""`) + `"`
	s := &SQLite{
		db:    db,
		table: table,
		query: map[string]string{},
		slots: make(chan struct{}, maxCalls),
	}
	s.watches.look, s.watches.all = s.released, map[*watch]struct{}{}
	var err error
	if s.ddl, err = migrations.Statements(migrations.SQLite(), quoted); err != nil {
		return nil, err
	}
	for _, name := range []string{"look", "take", "renew", "release", "list", "fence", "done", "released", "columns"} {
		text, err := files.ReadFile("sql/sqlite/" + name + ".sql")
		if err != nil {
			return nil, err
		}
		s.query[name] = strings.ReplaceAll(string(text), migrations.Table, quoted)
	}
	return s, nil
}

// Renew implements [joblease.Store]. It waits for the end of another
// connection's write transaction, as long as ctx allows.
func (s *SQLite) Renew(ctx context.Context, g joblease.Grant) error {
	return s.update(ctx, "renew", g, sql.Named("ttl", g.TTL.Microseconds()))
}

// Release implements [joblease.Store]. It waits for the end of another
// connection's write transaction, as long as ctx allows.
func (s *SQLite) Release(ctx context.Context, g joblease.Grant) error {
	var finished sql.NullInt64
	if g.Finished {
		finished = stored(g.Tick)
	}
	return s.update(ctx, "release", g, sql.Named("finished", finished))
}

// update runs a statement that matches the row of g if g still holds the lease.
func (s *SQLite) update(ctx context.Context, verb string, g joblease.Grant, more ...any) error {
	args := append(more, sql.Named("name", g.Name), sql.Named("claim", g.Claim[:]))
	n, err := call(ctx, s, func(ctx context.Context, conn *sql.Conn) (int64, error) {
		res, err := conn.ExecContext(ctx, s.query[verb], args...)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	})
	if err == nil && n == 0 {
		return lost(g)
	}
	return failed(verb, g.Name, err)
}

// List implements [joblease.Store].
func (s *SQLite) List(ctx context.Context) ([]joblease.Record, error) {
	list, err := call(ctx, s, func(ctx context.Context, conn *sql.Conn) (list []joblease.Record, err error) {
		err = each(ctx, conn, s.query["list"], nil, func(row *sql.Rows) error {
			var r joblease.Record
			var claim []byte
			var ttl, acquired, renewed, expires, now int64
			var tick sql.NullInt64
			err := row.Scan(&r.Name, &r.Holder, &claim, &r.Token, &r.Version, &ttl, &acquired, &renewed, &expires, &now,
				&tick, &r.TickDone)
			copy(r.Claim[:], claim)
			r.TTL, r.Remaining = micros(ttl), micros(expires-now)
			r.AcquiredAt, r.RenewedAt, r.ExpiresAt = instant(acquired), instant(renewed), instant(expires)
			r.Tick = optional(tick)
			list = append(list, r)
			return err
		})
		return list, err
	})
	return list, failed("list", s.table, err)
}

// released returns those of names that are free, with the version of their rows.
func (s *SQLite) released(ctx context.Context, names []string) (map[string]int64, error) {
	text, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	return call(ctx, s, func(ctx context.Context, conn *sql.Conn) (map[string]int64, error) {
		free := map[string]int64{}
		args := []any{sql.Named("names", string(text))}
		err := each(ctx, conn, s.query["released"], args, func(row *sql.Rows) error {
			var name string
			var version int64
			err := row.Scan(&name, &version)
			free[name] = version
			return err
		})
		return free, err
	})
}

func lost(g joblease.Grant) error {
	return &joblease.LostError{Name: g.Name, Token: g.Token, Reason: joblease.LostReplaced}
}

// failed says what failed, of what is not an error of this library's that says
// so itself.
func failed(verb, what string, err error) error {
	if err == nil || errors.Is(err, joblease.ErrHeld) || errors.As(err, new(*joblease.TickError)) ||
		errors.As(err, new(*joblease.SetupError)) {
		return err
	}
	return fmt.Errorf("joblease: %s %q: %w", verb, what, err)
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// optional returns the zero time for null.
func optional(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return instant(us.Int64)
}

// stored returns null for the zero time. What is finer than a microsecond is cut off.
func stored(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}
