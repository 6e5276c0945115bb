package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/joblease/joblease"
)

const (
	// channel that releases are told on. All tables of a database share it: a
	// candidate that is woken for the release of its name in another table has
	// looked once too often, and that is all.
	channel = "joblease"
	// What goes before the name of a lease, or the content of a ping, in a message.
	releasePrefix = "released "
	pingPrefix    = "ping "

	// quietPeriod without any message is when the connection has to prove that
	// it works: a network that drops an idle connection tells nobody.
	quietPeriod = 30 * time.Second
	// proofTimeout bounds each step of making and proving a connection.
	proofTimeout = 5 * time.Second
	// The time between two tries to listen doubles from the first to the last.
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = 5 * time.Second
	// poolerReconnect is the time to the next try where listening cannot work.
	poolerReconnect = time.Minute
)

// Watch implements [joblease.Watcher]. The first call makes the store open the
// connection that listens, for all watches. Live is true only while that
// connection has proved that messages reach it; where a pooler stands between,
// they cannot be relied on, and Live stays false.
func (s *Store) Watch(name string) joblease.Watch {
	l := s.listener
	w := &watch{name: name, wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return joblease.Watch{Wake: w.wake, Live: l.live.Load, Stop: func() {}}
	}
	if !l.started {
		l.started = true
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			l.run(s.closed)
		}()
	}
	l.watches[w] = struct{}{}
	return joblease.Watch{Wake: w.wake, Live: l.live.Load, Stop: func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watches, w)
	}}
}

// listener has the connection on which a store hears of releases.
type listener struct {
	store *Store
	cfg   *pgxpool.Config
	live  atomic.Bool

	quiet, proof time.Duration // quietPeriod and proofTimeout

	mu      sync.Mutex
	started bool
	ended   bool // nothing is to be started any more
	watches map[*watch]struct{}
}

type watch struct {
	name string
	wake chan struct{}
}

func newListener(s *Store, cfg *pgxpool.Config, disabled bool) *listener {
	return &listener{
		store: s, cfg: cfg, quiet: quietPeriod, proof: proofTimeout,
		ended: disabled, watches: make(map[*watch]struct{}),
	}
}

// close keeps Watch from starting anything.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// wake wakes the watches of a lease.
func (l *listener) wake(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watches {
		if w.name == name {
			w.signal()
		}
	}
}

// setLive tells all watches if it changes. A release that was told while nobody
// listened is noticed by the look that this leads to.
func (l *listener) setLive(live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live.Swap(live) == live {
		return
	}
	for w := range l.watches {
		w.signal()
	}
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it has a wake-up to receive already
	}
}

// run keeps a connection listening until ctx ends.
func (l *listener) run(ctx context.Context) {
	for failures := 0; ; failures++ {
		worked, err := l.listen(ctx)
		l.setLive(false)
		if ctx.Err() != nil {
			return
		}
		if worked {
			failures = 0
		}
		wait := min(firstReconnect<<min(failures, 16), lastReconnect)
		if errors.Is(err, errUnproven) {
			wait = poolerReconnect
		}
		t := time.NewTimer(wait/2 + mathrand.N(wait/2))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// errUnproven means that messages do not reach the connection although it works.
var errUnproven = errors.New("messages do not arrive")

// listen makes one connection and hands out what it hears until it breaks.
// worked reports whether it was live at some time.
func (l *listener) listen(ctx context.Context) (worked bool, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer closeConn(conn.PgConn())
	for {
		if err := l.prove(ctx, conn); err != nil {
			return worked, err
		}
		l.setLive(true)
		worked = true
		err := l.hear(ctx, conn, l.quiet, func(string) bool { return false })
		if !errors.Is(err, errQuiet) {
			return worked, err
		}
	}
}

// connect makes a connection as the pool would, and listens on it.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(proofTimeout, l.cfg.ConnConfig.ConnectTimeout))
	defer cancel()
	cfg := l.cfg.ConnConfig.Copy()
	if l.cfg.BeforeConnect != nil {
		if err := l.cfg.BeforeConnect(ctx, cfg); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if l.cfg.AfterConnect != nil {
		err = l.cfg.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = l.subscribe(ctx, conn.PgConn())
	}
	if err != nil {
		closeConn(conn.PgConn())
		return nil, err
	}
	return conn, nil
}

// subscribe sends LISTEN, unless a pooler stands between: the session that
// would listen there is not this client's, and goes on listening for whoever
// gets it next. A pooler shows in that it does not pass on the process id of the
// session.
func (l *listener) subscribe(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return err
	}
	d := decoder{row: results[0].Rows[0]}
	if pid := d.integer(); d.err != nil || pid != int64(conn.PID()) {
		return fmt.Errorf("%w: there is a pooler between", errUnproven)
	}
	_, err = conn.Exec(ctx, "LISTEN "+channel).ReadAll()
	return err
}

// prove sends a ping on another connection and waits until it arrives. Sent on
// the same one it could come back although nothing else does.
func (l *listener) prove(ctx context.Context, conn *pgx.Conn) error {
	ping := pingPrefix + rand.Text()
	call, cancel := context.WithTimeout(ctx, l.proof)
	defer cancel()
	_, err := l.store.call(call, command{op: "ping", sql: l.store.sql.ping, again: true,
		args: [][]byte{[]byte(channel), []byte(ping)}})
	if err != nil {
		return err
	}
	err = l.hear(ctx, conn, l.proof, func(message string) bool { return message == ping })
	if errors.Is(err, errQuiet) {
		return errUnproven
	}
	return err
}

// errQuiet means that no message came for a while.
var errQuiet = errors.New("quiet")

// hear hands out messages until the one that it waits for has come, or none for
// that long, or the connection breaks.
func (l *listener) hear(ctx context.Context, conn *pgx.Conn, quiet time.Duration, awaited func(string) bool) error {
	for {
		wait, cancel := context.WithTimeout(ctx, quiet)
		n, err := conn.WaitForNotification(wait)
		expired := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
		case expired && ctx.Err() == nil && !conn.IsClosed():
			return errQuiet
		default:
			return err
		}
		if name, ok := strings.CutPrefix(n.Payload, releasePrefix); ok {
			l.wake(name)
		}
		if awaited(n.Payload) {
			return nil
		}
	}
}
