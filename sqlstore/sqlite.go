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
	for _, name := range []string{"look", "take", "renew", "release", "list", "fence", "released", "columns"} {
		text, err := files.ReadFile("sql/sqlite/" + name + ".sql")
		if err != nil {
			return nil, err
		}
		s.query[name] = strings.ReplaceAll(string(text), migrations.Table, quoted)
	}
	return s, nil
}

// Acquire implements [joblease.Store].
//
// A refusal is a read: it takes no write lock, and in WAL mode it does not wait
// for one either. Another connection's write transaction locks all rows; an
// acquire that could win waits for its end, as long as ctx allows.
func (s *SQLite) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	var err error
	if err = joblease.CheckName(c.Name); err == nil && (c.ID.IsZero() || c.TTL <= 0) {
		err = errors.New("a claim needs an ID and a positive TTL")
	}
	var g joblease.Grant
	if err == nil {
		g, err = call(ctx, s, func(ctx context.Context, conn *sql.Conn) (joblease.Grant, error) {
			return s.acquire(ctx, conn, c)
		})
	}
	return g, failed("acquire", c.Name, err)
}

func (s *SQLite) acquire(ctx context.Context, conn *sql.Conn, c joblease.Claim) (joblease.Grant, error) {
	for {
		held, err := s.look(ctx, conn, c)
		if err != nil {
			return joblease.Grant{}, err
		}
		if held != nil {
			return joblease.Grant{}, held
		}
		sent := time.Now()
		g, err := s.take(ctx, conn, c)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			// A rival was faster. The next look tells who.
		case err != nil:
			return joblease.Grant{}, err
		case time.Since(sent) < c.TTL-clockTick:
			return g, nil
		default:
			// The commit took so long that the lease may have expired since its
			// clock was read. If it has not been taken over, the claim holds it
			// and this round extends it.
		}
		if err := ctx.Err(); err != nil {
			return joblease.Grant{}, err
		}
	}
}

// clockTick is how far SQLite's clock may be behind the machine's.
const clockTick = time.Millisecond

// look returns what stands in the row if c may not take it, else nil.
func (s *SQLite) look(ctx context.Context, conn *sql.Conn, c joblease.Claim) (*joblease.HeldError, error) {
	h := joblease.HeldError{Name: c.Name}
	var claim []byte
	var ttl, expires, now int64
	var free bool
	err := conn.QueryRowContext(ctx, s.query["look"], condition(c)...).
		Scan(&h.Holder, &claim, &h.Token, &h.Version, &ttl, &expires, &now, &free)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil || free {
		return nil, err
	}
	copy(h.Claim[:], claim)
	h.TTL, h.Remaining, h.Clock = micros(ttl), micros(expires-now), instant(now)
	return &h, nil
}

// take returns sql.ErrNoRows if c may not take the row.
func (s *SQLite) take(ctx context.Context, conn *sql.Conn, c joblease.Claim) (joblease.Grant, error) {
	g := joblease.Grant{Name: c.Name, Claim: c.ID, Holder: c.Holder, TTL: c.TTL.Truncate(time.Microsecond)}
	args := append(condition(c), sql.Named("holder", c.Holder), sql.Named("ttl", c.TTL.Microseconds()))
	found := false
	err := each(ctx, conn, s.query["take"], args, func(row *sql.Rows) error {
		found = true
		var acquired, expires int64
		err := row.Scan(&g.Token, &acquired, &expires)
		g.AcquiredAt, g.ExpiresAt = instant(acquired), instant(expires)
		return err
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return g, err
}

// condition returns the arguments that look.sql and take.sql share.
func condition(c joblease.Claim) []any {
	return []any{
		sql.Named("name", c.Name), sql.Named("claim", c.ID[:]), sql.Named("rule", int64(c.Takeover.Rule)),
		sql.Named("seen_claim", c.Takeover.Claim[:]), sql.Named("seen_version", c.Takeover.Version),
	}
}

// Renew implements [joblease.Store]. It waits for the end of another
// connection's write transaction, as long as ctx allows.
func (s *SQLite) Renew(ctx context.Context, g joblease.Grant) error {
	return s.update(ctx, "renew", g, sql.Named("ttl", g.TTL.Microseconds()))
}

// Release implements [joblease.Store]. It waits for the end of another
// connection's write transaction, as long as ctx allows.
func (s *SQLite) Release(ctx context.Context, g joblease.Grant) error {
	return s.update(ctx, "release", g)
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
			err := row.Scan(&r.Name, &r.Holder, &claim, &r.Token, &r.Version, &ttl, &acquired, &renewed, &expires, &now)
			copy(r.Claim[:], claim)
			r.TTL, r.Remaining = micros(ttl), micros(expires-now)
			r.AcquiredAt, r.RenewedAt, r.ExpiresAt = instant(acquired), instant(renewed), instant(expires)
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
	if err == nil || errors.Is(err, joblease.ErrHeld) || errors.As(err, new(*joblease.SetupError)) {
		return err
	}
	return fmt.Errorf("joblease: %s %q: %w", verb, what, err)
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }
