package joblease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
	"github.com/stretchr/testify/require"
)

// Replicas that guard their jobs, as processes of their own: see integration_test.go.

const guardURL = "JOBLEASE_TEST_GUARD_URL"

// The jobs of a replica. Those of the first kind have to run each of their ticks,
// whatever happens; those of the second drop what comes at a bad time.
const (
	everyTick, everyTickInterval = "every tick/", 100 * time.Millisecond
	mayDrop, mayDropInterval     = "may drop/", 500 * time.Millisecond
	jobsOfEach                   = 16
)

// guardMain is a service with many jobs, which writes down each run: its begin at
// once, its end in the transaction that Done is part of.
func guardMain(url string) error {
	ctx, cancel, ttl, say, err := replicaBegin()
	if err != nil {
		return err
	}
	defer cancel()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgstore.New(pool, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	work := func(ctx context.Context) error {
		g, _ := joblease.GrantFrom(ctx)
		// It does not look at the context, so that what stops the run of a replica
		// that was frozen is Done.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if _, err := pool.Exec(ctx, `INSERT INTO run (job, token, tick, pid) VALUES ($1, $2, $3, $4)`,
			g.Name, g.Token, g.Tick, os.Getpid()); err != nil {
			return err
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE run SET ended = clock_timestamp() WHERE job = $1 AND token = $2`,
				g.Name, g.Token); err != nil {
				return err
			}
			return store.Done(ctx, tx, g)
		})
		if errors.Is(err, joblease.ErrLost) {
			say("refused", g.Token)
		}
		return err
	}
	cfg := quiet("")
	cfg.TTL = ttl
	cfg.Observe = func(e joblease.Event) {
		switch {
		case e.Kind == joblease.EventReleased:
			say(released(e.Lease, e.Token), e.Token)
		case e.Kind == joblease.EventTickMissed && !errors.Is(e.Err, joblease.ErrHeld):
			say(unanswered(e.Lease, e.Tick), 0)
		}
	}
	guard, err := joblease.NewGuard(store, cfg)
	if err != nil {
		return err
	}
	var jobs []joblease.Job
	for i := range jobsOfEach {
		n := strconv.Itoa(i)
		jobs = append(jobs, joblease.Job{
			Name: everyTick + n, Run: work, Missed: joblease.MaxMissed, Again: true,
			Schedule: joblease.Interval(everyTickInterval, time.Duration(i)*everyTickInterval/jobsOfEach),
		}, joblease.Job{
			Name: mayDrop + n, Run: work,
			Schedule: joblease.Interval(mayDropInterval, time.Duration(i)*mayDropInterval/jobsOfEach),
		})
	}
	say("guards", 0)
	return guard.Run(ctx, jobs...)
}

// unanswered is the report that a tick has been given up since the store did not
// answer, as on a machine that is too busy.
func unanswered(job string, tick time.Time) string {
	return fmt.Sprintf("unanswered: %s at %s", job, tick.UTC().Format(time.RFC3339Nano))
}

// released is the report that the lease of a run is free: until then the job is
// not run anywhere.
func released(job string, token int64) string {
	return fmt.Sprintf("released: %s, token %d", job, token)
}

// Many ticks under signals in the middle of everything. The number of ticks is
// JOBLEASE_TICKS, and 2000 by default.
func TestEachTickRunsOnOneOfTheReplicas(t *testing.T) {
	goal := defaultTicks
	if s := os.Getenv("JOBLEASE_TICKS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		goal = n
	}
	const ttl = 1500 * time.Millisecond
	db, _ := cluster(t)
	db.Exec(t, `CREATE TABLE run (job text NOT NULL, token bigint NOT NULL, tick timestamptz NOT NULL, pid int NOT NULL,
		began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz)`)
	db.Exec(t, `CREATE INDEX ON run (job, token)`)
	began := time.Now()
	f := &guards{t: t, url: db.URL, ttl: ttl}
	const replicas = 4
	f.join()
	// A job that has never run has missed nothing, so until each has run the first
	// ticks may be passed over.
	require.Eventually(t, func() bool {
		return pgtest.Scan[int](t, db, `SELECT count(DISTINCT job) FROM run`) == 2*jobsOfEach
	}, time.Minute, 10*time.Millisecond)
	for range replicas - 1 {
		f.join()
	}
	runs := func() int { return pgtest.Scan[int](t, db, `SELECT count(*) FROM run WHERE ended IS NOT NULL`) }
	for down := false; ; {
		n := runs()
		if n >= goal {
			break
		}
		if !down && n >= goal/2 {
			f.allDown()
			down = true
			continue
		}
		time.Sleep(rand.N(600 * time.Millisecond)) // when exactly is left to chance
		f.strike()
	}
	calm := time.Now()
	require.Eventually(t, func() bool {
		return pgtest.Scan[int](t, db, `SELECT count(DISTINCT job) FROM run WHERE began > $1 AND ended IS NOT NULL`, calm) == 2*jobsOfEach
	}, time.Minute, 100*time.Millisecond, "every job goes on")
	for range replicas {
		f.leave(0, syscall.SIGTERM)
	}
	rows, err := db.Pool(t).Query(t.Context(), `SELECT job, token, tick, pid, began, ended FROM run`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[jobRun])
	require.NoError(t, err)
	f.listen()
	a := f.account(all)
	t.Logf("%d ticks in %.0f s, %d replicas at a time; %d killed, %d stopped, %d frozen; "+
		"%d runs cut short or refused (%d by Done), %d claims not begun; %d ticks run again",
		a.ticks, time.Since(began).Seconds(), replicas, f.killed, f.stopped, f.frozen, a.cut, f.said["refused"], a.notBegun, a.again)
	t.Logf("run twice: %d; overlapped: %d; missed by the jobs that run each tick: %d; "+
		"dropped by the others: %d, %d more because the store did not answer, without a reason: %d",
		len(a.doubled), len(a.overlapped), len(a.missed), a.dropped, a.unanswered, len(a.unexplained))
	require.Empty(t, a.doubled, "ticks whose effects are there twice, or that were begun again without need")
	require.Empty(t, a.overlapped, "runs that began while another of the job, not cut short, still went on")
	require.Empty(t, a.missed, "ticks that nobody has run, of the jobs that run each")
	if goal > defaultTicks && a.unanswered == 0 {
		// Such a job drops a tick that nobody could claim before the next one came,
		// which on a machine that runs other tests may be a matter of processor
		// time. So this is for the long run, by hand; the simulations, in which
		// time does not depend on the machine, ask for it always.
		require.Empty(t, a.unexplained, "ticks dropped for no reason")
	}
	require.Zero(t, a.unfinished)
	require.GreaterOrEqual(t, a.ticks, goal)
}

const defaultTicks = 2000

// guards are the replicas of one test, and what was done to them.
type guards struct {
	t       testing.TB
	url     string
	ttl     time.Duration
	up, all []*process

	blows                   []blow
	killed, stopped, frozen int
	down                    [2]time.Time // nobody was up

	said map[string]int       // how often the replicas have said that
	last map[string]time.Time // and when
}

func (f *guards) listen() {
	f.said, f.last = map[string]int{}, map[string]time.Time{}
	for _, p := range f.all {
		for _, r := range p.history() {
			f.said[r.What]++
			f.last[r.What] = r.At
		}
	}
}

func (f *guards) join() {
	p := launchAs(f.t, guardURL, f.url, f.ttl)
	f.up, f.all = append(f.up, p), append(f.all, p)
}

// hit sends a signal to one that is up.
func (f *guards) hit(p *process, s syscall.Signal) {
	f.blows = append(f.blows, blow{p.cmd.Process.Pid, time.Now()})
	p.signal(f.t, s)
}

// leave ends one with a signal and waits until it is gone.
func (f *guards) leave(i int, s syscall.Signal) {
	p := f.up[i]
	f.up = slices.Delete(f.up, i, i+1)
	if s == syscall.SIGTERM {
		<-p.listens // for signals too
	}
	f.hit(p, s)
	<-p.done
	if s == syscall.SIGKILL {
		f.killed++
		return
	}
	require.True(f.t, p.cmd.ProcessState.Success())
	f.stopped++
}

// strike does something bad to one of the replicas.
func (f *guards) strike() {
	i := rand.IntN(len(f.up))
	switch p := f.up[i]; rand.IntN(5) {
	case 0, 1:
		f.leave(i, syscall.SIGKILL)
		f.join()
	case 2, 3:
		f.leave(i, syscall.SIGTERM)
		f.join()
	case 4: // and another dies meanwhile
		f.hit(p, syscall.SIGSTOP)
		time.Sleep(f.ttl/2 + rand.N(f.ttl))
		f.leave((i+1)%len(f.up), syscall.SIGKILL)
		f.join()
		p.signal(f.t, syscall.SIGCONT)
		f.frozen++
	}
}

func (f *guards) allDown() {
	n := len(f.up)
	f.down[0] = time.Now()
	for range n {
		f.leave(0, syscall.SIGKILL)
	}
	time.Sleep(f.ttl)
	for range n {
		f.join()
	}
	<-f.up[0].listens
	f.down[1] = time.Now()
}

// wire counts what a client sends: pgx writes once for each round trip.
type wire struct {
	net.Conn
	sent *atomic.Int64
}

func (w wire) Write(b []byte) (int, error) {
	w.sent.Add(1)
	return w.Conn.Write(b)
}

func TestATickThatIsWonCostsTwoStatementsAndOneThatIsLostCostsOne(t *testing.T) {
	const ticks = 100
	db, row := cluster(t)
	candidate := func() (*joblease.Guard, *atomic.Int64) {
		cfg, sent := db.Config(t), new(atomic.Int64)
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return wire{conn, sent}, err
		}
		store, err := pgstore.New(pgtest.NewPool(t, cfg), pgstore.Options{})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		g, err := joblease.NewGuard(store, quiet(""))
		require.NoError(t, err)
		return g, sent
	}
	winner, won := candidate()
	loser, lost := candidate()
	nothing := func(context.Context) error { return nil }
	first := time.Now().Add(-time.Hour)
	for _, g := range []*joblease.Guard{winner, loser} { // which connects
		_, err := g.Once(t.Context(), "job", first, nothing)
		require.NoError(t, err)
	}
	won.Store(0)
	lost.Store(0)
	start := row().Version
	var written joblease.Record
	for i := range ticks {
		tick := first.Add(time.Duration(i+1) * time.Second)
		ran, err := winner.Once(t.Context(), "job", tick, nothing)
		require.NoError(t, err)
		require.True(t, ran)
		written = row()
		ran, err = loser.Once(t.Context(), "job", tick, nothing)
		require.NoError(t, err)
		require.False(t, ran)
		require.Equal(t, written.Version, row().Version)
	}
	require.EqualValues(t, 2*ticks, won.Load())
	require.EqualValues(t, ticks, lost.Load())
	require.EqualValues(t, 2*ticks, written.Version-start, "and each of the two is one write")
}
