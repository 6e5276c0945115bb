// Package pgstore keeps leases in PostgreSQL 14 and newer, through pgx.
//
//	store, err := pgstore.New(pool, pgstore.Options{})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	if err := store.Migrate(ctx); err != nil { // or the files in package migrations
//		return err
//	}
//
// Each call is one atomic statement and one round trip, and leaves nothing
// behind in the session, so a pooler in transaction mode may stand between. The
// deadline of the call's context is given to the server too: a statement that
// waits for a lock ends there, not only here.
//
// By default a store has connections of its own, at most two and one that
// listens for releases, so that a renewal never waits behind the application's
// queries.
//
// Work that writes to the same database is made safe against a holder that has
// lost its lease without knowing it by [Store.Fence], and done exactly once for
// each tick of a job by [Store.Done].
package pgstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/migrations"
)

const (
	// ownConns is enough for a hundred leases: a renewal takes a round trip. A
	// second connection keeps one that hangs from holding up all the others.
	ownConns = 2
	// connectTimeout bounds the making of a connection if the caller's pool sets
	// no bound. So does the time that the call has which needs it, but that may
	// be too short for any connection.
	connectTimeout    = 5 * time.Second
	minConnectTimeout = time.Second
	// defaultCallTimeout bounds calls whose context has no deadline.
	defaultCallTimeout = 30 * time.Second
	// maxIdentifier is how long a name can be in PostgreSQL, in bytes. It cuts
	// longer ones, and two tables could become one.
	maxIdentifier = 63
)

// Options of a [Store]. The zero value works.
type Options struct {
	// Table is the name of the lease table. Default [migrations.Table]. It is
	// quoted, so it is exact: "Leases" and "leases" are two tables.
	Table string
	// Schema that the table is in. By default it is looked for on the search
	// path of the connection.
	Schema string
	// SharePool makes the store use the caller's pool instead of connections of
	// its own. Calls then wait for a free connection of that pool as all others
	// do, and an application that takes them all for too long loses its leases.
	SharePool bool
	// DisableNotify makes the store do without a listening connection. Waiting
	// candidates then notice a release at their next look.
	DisableNotify bool
}

// Store is a [joblease.Store] and a [joblease.Watcher]. It is safe for
// concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	own   bool   // pool is the store's, to be closed
	table string // quoted, with its schema
	user  string // whom the pool connects as, for messages
	sql   statements

	listener *listener

	closed context.Context // ended by Close
	close  context.CancelFunc
	wg     sync.WaitGroup
}

var (
	_ joblease.Store   = (*Store)(nil)
	_ joblease.Watcher = (*Store)(nil)
)

// New returns a store on the database of pool. It does no I/O; [Store.Check]
// tells whether the database is set up.
//
// Unless opts.SharePool is set the store opens connections of its own, when they
// are needed, with the configuration of pool: its hooks BeforeConnect,
// AfterConnect and BeforeClose are kept, those for each use of a connection are
// not. The caller calls [Store.Close] when the leases on the store have ended,
// and closes pool itself.
//
// The error is a *[joblease.ConfigError]: pool is nil, or the name of the table
// or the schema cannot be one.
func New(pool *pgxpool.Pool, opts Options) (*Store, error) {
	if pool == nil {
		return nil, &joblease.ConfigError{Field: "pool", Value: nil, Rule: "must not be nil"}
	}
	if opts.Table == "" {
		opts.Table = migrations.Table
	}
	ident := pgx.Identifier{opts.Table}
	if err := checkIdentifier("Table", opts.Table); err != nil {
		return nil, err
	}
	if opts.Schema != "" {
		if err := checkIdentifier("Schema", opts.Schema); err != nil {
			return nil, err
		}
		ident = pgx.Identifier{opts.Schema, opts.Table}
	}
	cfg := pool.Config() // a copy
	s := &Store{
		pool:  pool,
		table: ident.Sanitize(),
		user:  cfg.ConnConfig.User,
	}
	s.sql = load(s.table)
	prepareConfig(cfg)
	if !opts.SharePool {
		own, err := pgxpool.NewWithConfig(context.Background(), cfg)
		if err != nil {
			return nil, fmt.Errorf("joblease: the store's own pool: %w", err)
		}
		s.pool, s.own = own, true
	}
	s.closed, s.close = context.WithCancel(context.Background())
	s.listener = newListener(s, cfg, opts.DisableNotify)
	return s, nil
}

// prepareConfig makes the configuration of the caller's pool that of the
// store's own connections.
func prepareConfig(cfg *pgxpool.Config) {
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = ownConns, 0, 0
	// These belong to the application's use of its connections, and each can
	// cost a round trip. A connection that has died is found by the call itself.
	cfg.PrepareConn, cfg.BeforeAcquire, cfg.AfterRelease = nil, nil, nil //nolint:staticcheck // a caller may use the old hook
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	if cfg.ConnConfig.ConnectTimeout <= 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	before := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		// The pool goes on connecting when the call that asked for it has left,
		// and that holds one of its few places.
		if left, ok := ctx.Value(timeLeft{}).(time.Duration); ok {
			c.ConnectTimeout = min(c.ConnectTimeout, max(left, minConnectTimeout))
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil
	}
}

// timeLeft is the context key under which a call tells the pool's hook how much
// time it has. Of a context the pool passes on the values, not the deadline.
type timeLeft struct{}

func checkIdentifier(field, name string) error {
	switch {
	case len(name) > maxIdentifier:
		return &joblease.ConfigError{Field: field, Value: fmt.Sprintf("%.40q… (%d bytes)", name, len(name)),
			Rule: fmt.Sprintf("must be at most %d bytes; PostgreSQL cuts longer names", maxIdentifier)}
	case strings.ContainsRune(name, 0):
		// Sanitize drops a zero byte, and would make another name of it.
		return &joblease.ConfigError{Field: field, Value: fmt.Sprintf("%q", name), Rule: "must not contain a zero byte"}
	}
	return nil
}

// Close ends calls in flight, stops listening, closes the connections that the
// store has opened and waits until all that is done. The caller's pool stays
// open. Calls on a closed store fail; closing it again does nothing.
func (s *Store) Close() {
	s.listener.close()
	s.close()
	if s.own {
		s.pool.Close()
	}
	s.wg.Wait()
}
