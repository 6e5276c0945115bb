package interop_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"
)

// TestMain lets the binary be a process of its own: a test that freezes one
// starts it again with fileEnv set.
func TestMain(m *testing.M) {
	if file := os.Getenv(fileEnv); file != "" {
		if err := frozenReplica(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// fileEnv is the variable that names the database of a process of its own.
const fileEnv = "JOBLEASE_TEST_FILE"

// patience is when something that must come to pass is given up.
const patience = 20 * time.Second

// quiet is a Config without log output.
func quiet(holder string, ttl time.Duration) joblease.Config {
	return joblease.Config{Holder: holder, TTL: ttl, Logger: slog.New(slog.DiscardHandler)}
}

// term is one run of a supervised scheduler.
type term struct {
	token          int64
	began, stopped time.Time // stopped is zero while it runs
}

// replica is a supervisor that runs in the background, with a record of its terms
// and of its ticks.
type replica struct {
	*joblease.Supervisor
	name string
	// began receives a value at the beginning of each term, if somebody waits.
	began chan struct{}
	// ticked receives a value at each tick, if somebody waits.
	ticked chan struct{}

	stop context.CancelFunc
	done chan struct{}
	err  error // of Run, once done is closed

	mu     sync.Mutex
	terms  []term
	ticks  []time.Time
	events map[joblease.EventKind]int
}

// start runs sch under a supervisor. make gets the replica, so that jobs can tell
// it of their ticks and be gated by it.
func start(t *testing.T, s joblease.Store, cfg joblease.Config, make func(r *replica) joblease.Scheduler) *replica {
	t.Helper()
	r := newReplica(t, s, cfg, make)
	r.launch(t)
	return r
}

func newReplica(t testing.TB, s joblease.Store, cfg joblease.Config, make func(r *replica) joblease.Scheduler) *replica {
	t.Helper()
	r := &replica{name: cfg.Holder, began: newSignal(), ticked: newSignal(), events: map[joblease.EventKind]int{}}
	cfg.Observe = func(e joblease.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events[e.Kind]++
	}
	var inner joblease.Scheduler // made once the supervisor is there to gate jobs
	outer := joblease.Func(func(ctx context.Context) error {
		g, _ := joblease.GrantFrom(ctx)
		r.mu.Lock()
		r.terms = append(r.terms, term{token: g.Token, began: time.Now()})
		r.mu.Unlock()
		signal(r.began)
		err := inner.Run(ctx)
		r.mu.Lock()
		r.terms[len(r.terms)-1].stopped = time.Now()
		r.mu.Unlock()
		return err
	})
	var err error
	r.Supervisor, err = joblease.NewSupervisor(s, "job", outer, cfg)
	require.NoError(t, err)
	inner = make(r)
	return r
}

// launch calls Run. The test's end stops it and waits for it.
func (r *replica) launch(t testing.TB) {
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(func() { _ = r.shutdown() })
}

// shutdown ends the replica in good order and waits for it.
func (r *replica) shutdown() error {
	r.stop()
	<-r.done
	return r.err
}

// tick notes a run of the job.
func (r *replica) tick() {
	r.mu.Lock()
	r.ticks = append(r.ticks, time.Now())
	r.mu.Unlock()
	signal(r.ticked)
}

func (r *replica) runs() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Time(nil), r.ticks...)
}

func (r *replica) history() []term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]term(nil), r.terms...)
}

func (r *replica) told(kind joblease.EventKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[kind] > 0
}

func (r *replica) leads() bool { return r.IsLeader(context.Background()) == nil }

// resign hands the lease over and waits until the term has ended.
func (r *replica) resign(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	require.NoError(t, r.Resign(ctx))
}

func newSignal() chan struct{} { return make(chan struct{}, 1) }

// signal is kept for one who comes to wait, once.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await waits for a signal that is given after this call.
func await(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select { // one that was given before
	case <-c:
	default:
	}
	receive(t, c, what)
}

// receive waits for a signal.
func receive(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.FailNow(t, "not within the test's patience: "+what)
	}
}

// eventually waits until what nobody announces has come to pass.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "not within the test's patience: "+what)
		}
	}
}

func row(t testing.TB, m *storetest.Memory) joblease.Record {
	t.Helper()
	r, ok := m.Get("job")
	require.True(t, ok, "there is no row")
	return r
}

// openSQLite returns a store with a lease table in a file, and the database. The
// test's end closes both. The test is skipped under -short.
func openSQLite(t testing.TB, file string) (*sqlstore.SQLite, *sql.DB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a database; not run with -short")
	}
	db, err := sqlite(file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := sqlstore.NewSQLite(db, sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Migrate(t.Context()))
	return s, db
}

func sqlite(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.ToSlash(file)+"?_pragma=journal_mode(WAL)")
}
