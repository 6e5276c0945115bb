package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// maxCalls is how many calls of a store are in the database at a time; others
// wait their turn. Without a limit a thousand goroutines would open a thousand
// connections to a file that lets one of them write. It also bounds what a disk
// that hangs can leave behind, since a call that was given up keeps its place
// until the driver returns.
const maxCalls = 4

// call runs fn on a connection until it succeeds or fails for another reason
// than another connection's locks, or until ctx ends. The connection goes back
// to the pool between tries.
func call[T any](ctx context.Context, s *SQLite, fn func(context.Context, *sql.Conn) (T, error)) (T, error) {
	var locked error
	for try := 0; ; try++ {
		v, err := once(ctx, s, fn)
		switch {
		case err == nil:
			return v, nil
		case isLocked(err):
			locked = err
			err = pause(ctx, try)
			if err == nil {
				continue
			}
		}
		if locked != nil && ctx.Err() != nil {
			err = fmt.Errorf("another connection locks the database: %w: %w", err, locked)
		}
		return v, err
	}
}

// once is one try of a call. It returns when ctx ends even if the driver does
// not, which hangs in a read from a dead disk, and while it opens a connection
// whose own settings must wait for a lock.
func once[T any](ctx context.Context, s *SQLite, fn func(context.Context, *sql.Conn) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-s.slots }()
		v, err := onConn(ctx, s, fn)
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func onConn[T any](ctx context.Context, s *SQLite, fn func(context.Context, *sql.Conn) (T, error)) (T, error) {
	var none T
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return none, err
	}
	defer conn.Close() //nolint:errcheck // it only goes back to the pool
	restore, err := impatient(ctx, conn)
	if err != nil {
		return none, err
	}
	v, err := fn(ctx, conn)
	if err := restore(); err != nil {
		// A connection with a setting that is not the caller's must not go back.
		discard(conn)
	}
	if err == nil || isLocked(err) {
		return v, err
	}
	if resultCode(err) == codeMoved {
		discard(conn) // or it would stay with the old file for ever
	}
	return none, s.explain(ctx, conn, err)
}

// discard closes the connection instead of leaving it to the pool.
func discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // it returns what it was given
}

// session is a *sql.Conn or a *sql.Tx.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// impatient makes statements on a session fail at once when another connection
// has the lock they need, and returns what restores the caller's setting. Under
// a busy_timeout SQLite sleeps and tries again by itself, and an interrupt, which
// is how drivers pass on the end of a context, does not end that: with a timeout
// of a minute a call would last a minute.
func impatient(ctx context.Context, on session) (restore func() error, err error) {
	var ms int64
	if err := on.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&ms); err != nil {
		return nil, err
	}
	if ms == 0 {
		return func() error { return nil }, nil
	}
	set := func(ctx context.Context, ms int64) error {
		_, err := on.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", ms))
		return err
	}
	restore = func() error { return set(context.WithoutCancel(ctx), ms) }
	if err := set(ctx, 0); err != nil {
		return nil, errors.Join(err, restore()) // it may have been set before ctx ended
	}
	return restore, nil
}

// pause waits before the next try. The lengths are drawn at random, so that
// replicas that collided once do not collide in step ever after.
func pause(ctx context.Context, try int) error {
	most := min(time.Millisecond<<min(try, 10), 25*time.Millisecond)
	t := time.NewTimer(most/4 + rand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each calls row for each row of a query. It reads to the end: a statement that
// writes commits when it has returned its last row, and that can fail.
func each(ctx context.Context, on session, query string, args []any, row func(*sql.Rows) error) error {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // closed below where it matters
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}
