package joblease_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
	"github.com/stretchr/testify/require"
)

// These tests run replicas as processes of their own, on a real PostgreSQL, and
// end them with real signals. A replica is this test binary, started again.

const (
	replicaURL = "JOBLEASE_TEST_REPLICA_URL"
	replicaTTL = "JOBLEASE_TEST_REPLICA_TTL"
)

func TestMain(m *testing.M) {
	for env, main := range map[string]func(url string) error{replicaURL: replicaMain, guardURL: guardMain} {
		if url := os.Getenv(env); url != "" {
			if err := main(url); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	pgtest.Main(m)
}

// report is a line on the standard output of a replica.
type report struct {
	// start or stop of a term; job: a gated job ran; listens: it hears of releases;
	// guards: its jobs run; refused: Done has
	What  string
	Token int64
	At    time.Time // the wall clock, which all processes share
}

// replicaMain is a small service: a job every 5 ms on a timer of its own, which
// runs on every replica and is gated.
func replicaMain(url string) error {
	ctx, cancel, ttl, say, err := replicaBegin()
	if err != nil {
		return err
	}
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgstore.New(pool, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	cfg := quiet("")
	cfg.TTL = ttl
	sup, err := joblease.NewSupervisor(store, "job", joblease.Func(func(ctx context.Context) error {
		g, _ := joblease.GrantFrom(ctx)
		say("start", g.Token)
		<-ctx.Done()
		say("stop", g.Token)
		return nil
	}), cfg)
	if err != nil {
		return err
	}
	job := sup.Gate(func(ctx context.Context) {
		g, _ := joblease.GrantFrom(ctx)
		say("job", g.Token)
	})
	var jobs sync.WaitGroup
	jobs.Go(func() {
		watch := store.Watch("some other lease")
		defer watch.Stop()
		for !watch.Live() {
			select {
			case <-watch.Wake:
			case <-ctx.Done():
				return
			}
		}
		say("listens", 0)
	})
	jobs.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				job()
			}
		}
	})
	err = sup.Run(ctx)
	jobs.Wait()
	return err
}

// replicaBegin is what every kind of replica begins with: ctx ends at a SIGTERM,
// and say writes a report.
func replicaBegin() (ctx context.Context, cancel func(), ttl time.Duration, say func(what string, token int64), err error) {
	ttl, err = time.ParseDuration(os.Getenv(replicaTTL))
	if err != nil {
		return nil, nil, 0, nil, err
	}
	go func() { // the end of the parent, however it comes, is the end of the replica
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say = func(what string, token int64) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(report{what, token, time.Now()}); err != nil {
			os.Exit(4)
		}
	}
	ctx, cancel = signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx, cancel, ttl, say, nil
}

// process is a replica that runs.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	starts  chan report   // of its terms
	listens chan struct{} // closed when it hears of releases, or guards its jobs
	done    chan struct{}

	mu      sync.Mutex
	reports []report
}

func launch(t testing.TB, url string, ttl time.Duration) *process {
	t.Helper()
	return launchAs(t, replicaURL, url, ttl)
}

// launchAs starts the kind of replica that is told its database by that variable.
func launchAs(t testing.TB, env, url string, ttl time.Duration) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+url, replicaTTL+"="+ttl.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, starts: make(chan report, 100), listens: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) != nil {
				continue // half a line of a killed process
			}
			p.mu.Lock()
			p.reports = append(p.reports, r)
			p.mu.Unlock()
			switch r.What {
			case "start":
				p.starts <- r
			case "listens", "guards":
				close(p.listens)
			}
		}
		_ = cmd.Wait() // how it ended is looked up in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

func (p *process) history() []report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reports)
}

// await returns the next start of a term among the processes.
func await(t testing.TB, ps ...*process) (leader *process, r report) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		for _, p := range ps {
			select {
			case r := <-p.starts:
				return p, r
			default:
			}
		}
		select {
		case <-timeout:
			require.FailNow(t, "nobody leads")
		case <-time.After(time.Millisecond):
		}
	}
}

// cluster is a database with the table in it, and a look at the row.
func cluster(t testing.TB) (*pgtest.DB, func() joblease.Record) {
	t.Helper()
	db := pgtest.New(t)
	store, err := pgstore.New(db.Pool(t), pgstore.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	return db, func() joblease.Record {
		records, err := store.List(t.Context())
		require.NoError(t, err)
		require.Len(t, records, 1)
		return records[0]
	}
}

// noOverlap checks that no replica's job began after a later term had begun
// anywhere. One job for each term may be late: the one that had been let in when
// the process was frozen. Only a fence stops that one.
func noOverlap(t testing.TB, ps ...*process) {
	t.Helper()
	began := map[int64]time.Time{}
	for _, p := range ps {
		for _, r := range p.history() {
			if r.What == "start" {
				require.NotContains(t, began, r.Token, "a token is given once")
				began[r.Token] = r.At
			}
		}
	}
	for _, p := range ps {
		late := map[int64]int{}
		for _, r := range p.history() {
			for token, at := range began {
				if r.What == "job" && token > r.Token && r.At.After(at) {
					late[r.Token]++
					break
				}
			}
		}
		for token, jobs := range late {
			require.LessOrEqual(t, jobs, 1, "jobs of term %d that ran after a later term had begun", token)
		}
	}
}

func TestAKilledReplicaIsReplacedAfterTheExpiryAndNotBefore(t *testing.T) {
	db, row := cluster(t)
	const ttl = time.Second
	var all []*process
	a := launch(t, db.URL, ttl)
	await(t, a)
	b, c := launch(t, db.URL, ttl), launch(t, db.URL, ttl)
	all = append(all, a, b, c)
	for range 3 {
		leader, others := a, []*process{b, c}
		leader.signal(t, syscall.SIGKILL)
		<-leader.done
		expires := row().ExpiresAt
		next, started := await(t, others...)
		require.True(t, started.At.After(expires), "never before the expiry, on one machine's clock")
		a, b = next, launch(t, db.URL, ttl)
		if next == c {
			c = others[0]
		}
		all = append(all, b)
	}
	noOverlap(t, all...)
}

func TestAReplicaToldToStopHandsOverAtOnceAndExitsWell(t *testing.T) {
	db, row := cluster(t)
	const ttl = time.Minute // so that expiry has no part in it
	a := launch(t, db.URL, ttl)
	await(t, a)
	b := launch(t, db.URL, ttl)
	for range 5 {
		<-b.listens // or it could take the lease only at its next look
		a.signal(t, syscall.SIGTERM)
		<-a.done
		require.True(t, a.cmd.ProcessState.Success())
		await(t, b)
		noOverlap(t, a, b)
		a, b = b, launch(t, db.URL, ttl)
	}
	a.signal(t, syscall.SIGTERM)
	<-a.done
	await(t, b)
	b.signal(t, syscall.SIGTERM)
	<-b.done
	require.True(t, row().Claim.IsZero(), "the last one leaves it released")
}

func TestAFrozenReplicaThatWakesStartsNothing(t *testing.T) {
	db, _ := cluster(t)
	const ttl = time.Second
	a := launch(t, db.URL, ttl)
	await(t, a)
	b := launch(t, db.URL, ttl)
	ps := []*process{a, b}
	for range 3 {
		a.signal(t, syscall.SIGSTOP)
		_, second := await(t, b)
		a.signal(t, syscall.SIGCONT)
		require.Eventually(t, func() bool {
			h := a.history()
			return slices.ContainsFunc(h, func(r report) bool { return r.What == "stop" && r.Token < second.Token && r.At.After(second.At) })
		}, 10*time.Second, time.Millisecond, "the scheduler is stopped at once")
		a, b = b, a
	}
	noOverlap(t, ps...)
}

func TestSignalsInTheMiddleOfEverythingLeaveNoTwoLeaders(t *testing.T) {
	db, _ := cluster(t)
	const ttl = 500 * time.Millisecond
	var all []*process
	running := []*process{launch(t, db.URL, ttl), launch(t, db.URL, ttl), launch(t, db.URL, ttl)}
	all = append(all, running...)
	for round := range 12 {
		leader, _ := await(t, running...)
		i := slices.Index(running, leader)
		switch round % 3 {
		case 0:
			leader.signal(t, syscall.SIGKILL)
			<-leader.done
			running[i] = launch(t, db.URL, ttl)
			all = append(all, running[i])
		case 1:
			leader.signal(t, syscall.SIGTERM)
			<-leader.done
			require.True(t, leader.cmd.ProcessState.Success())
			running[i] = launch(t, db.URL, ttl)
			all = append(all, running[i])
		case 2:
			leader.signal(t, syscall.SIGSTOP)
			rest := slices.Delete(slices.Clone(running), i, i+1)
			next, r := await(t, rest...)
			next.starts <- r // for the next round
			leader.signal(t, syscall.SIGCONT)
		}
	}
	await(t, running...)
	noOverlap(t, all...)
}

// quantile returns the q-th quantile of ds.
func quantile(ds []time.Duration, q float64) time.Duration {
	slices.Sort(ds)
	return ds[int(q*float64(len(ds)-1)+0.5)]
}

// roundTrip is the median time of SELECT 1 on a connection like those of the store.
func roundTrip(b *testing.B, db *pgtest.DB) time.Duration {
	conn := db.Conn(b)
	var ds []time.Duration
	for range 300 {
		began := time.Now()
		var one int
		require.NoError(b, conn.QueryRow(b.Context(), "select 1").Scan(&one))
		ds = append(ds, time.Since(began))
	}
	return quantile(ds, 0.5)
}

// BenchmarkHandover measures from the SIGTERM of the holder, sent by this
// process, to the start of the successor's scheduler, both in processes of their
// own.
func BenchmarkHandover(b *testing.B) {
	db, _ := cluster(b)
	const ttl = time.Second
	a := launch(b, db.URL, ttl)
	await(b, a)
	var ds []time.Duration
	for b.Loop() {
		s := launch(b, db.URL, ttl)
		<-s.listens
		told := time.Now()
		a.signal(b, syscall.SIGTERM)
		_, r := await(b, s)
		ds = append(ds, r.At.Sub(told))
		<-a.done
		a = s
	}
	figures(b, db, ds)
}

// BenchmarkTakeover measures from the expiry that the database holds, after the
// SIGKILL of the holder, to the start of the successor's scheduler.
func BenchmarkTakeover(b *testing.B) {
	db, row := cluster(b)
	const ttl = time.Second
	a := launch(b, db.URL, ttl)
	await(b, a)
	var ds []time.Duration
	for b.Loop() {
		s := launch(b, db.URL, ttl)
		<-s.listens
		// Until the standby has seen a renewal: before that it waits for a TTL
		// from its first look, as documented.
		seen := row().Version
		require.Eventually(b, func() bool { return row().Version >= seen+4 }, 10*time.Second, 10*time.Millisecond)
		a.signal(b, syscall.SIGKILL)
		<-a.done
		expires := row().ExpiresAt
		_, r := await(b, s)
		ds = append(ds, r.At.Sub(expires))
		require.Positive(b, ds[len(ds)-1])
		a = s
	}
	figures(b, db, ds)
}

func figures(b *testing.B, db *pgtest.DB, ds []time.Duration) {
	rtt := roundTrip(b, db)
	p50, p99 := quantile(ds, 0.5), quantile(ds, 0.99)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(p50)/1e6, "p50-ms")
	b.ReportMetric(float64(p99)/1e6, "p99-ms")
	b.ReportMetric(float64(p50)/float64(rtt), "p50-rtt")
	b.ReportMetric(float64(p99)/float64(rtt), "p99-rtt")
}
