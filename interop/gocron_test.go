package interop_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// gocron waits for its jobs in a busy loop, in which the time of a synctest
// bubble would stand still, so these tests take real time.

var _ gocron.Elector = (*joblease.Supervisor)(nil)

const (
	shortTTL = 300 * time.Millisecond
	interval = 20 * time.Millisecond
)

// newGocron returns a scheduler that the test's end shuts down.
func newGocron(t testing.TB, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
	return s
}

// perTerm supervises a gocron of its own for each term, which jobs adds the jobs to.
func perTerm(jobs func(gocron.Scheduler), opts ...gocron.SchedulerOption) joblease.Scheduler {
	return joblease.PerTerm(func(context.Context) (gocron.Scheduler, error) {
		s, err := gocron.NewScheduler(opts...)
		if err == nil {
			jobs(s)
		}
		return s, err
	})
}

func add(t testing.TB, s gocron.Scheduler, job func(), opts ...gocron.JobOption) {
	t.Helper()
	_, err := s.NewJob(gocron.DurationJob(interval), gocron.NewTask(job), opts...)
	require.NoError(t, err)
}

// oneRun lets one run of a job begin after another.
var oneRun = gocron.WithSingletonMode(gocron.LimitModeReschedule)

func TestOnlyTheJobsOfTheElectedReplicaRun(t *testing.T) {
	m := storetest.NewMemory()
	elected := func(name string) *replica {
		r := start(t, m, quiet(name, shortTTL), func(*replica) joblease.Scheduler { return joblease.Idle() })
		s := newGocron(t, gocron.WithDistributedElector(r))
		add(t, s, r.tick, oneRun)
		s.Start()
		return r
	}
	a := elected("a")
	eventually(t, "a leads", a.leads)
	b := elected("b")

	leader, standby := a, b
	for range 3 {
		before := len(standby.runs())
		for range 10 {
			await(t, leader.ticked, "the leader ticks")
		}
		require.LessOrEqual(t, len(standby.runs())-before, 1, "but for one that was let in just before the handover")
		leader.resign(t)
		leader, standby = standby, leader
		eventually(t, "the standby takes over", leader.leads)
	}
	require.NotEmpty(t, b.runs())
}

func TestAJobOfAnElectedReplicaIsWaitedForIfItPassedTheGate(t *testing.T) {
	m := storetest.NewMemory()
	end := make(chan struct{})
	a := start(t, m, quiet("a", shortTTL), func(*replica) joblease.Scheduler { return joblease.Idle() })
	s := newGocron(t, gocron.WithDistributedElector(a))
	add(t, s, a.Gate(func(context.Context) { a.tick(); <-end }), oneRun)
	s.Start()
	await(t, a.ticked, "the job runs")
	b := start(t, m, quiet("b", shortTTL), func(*replica) joblease.Scheduler { return joblease.Idle() })

	resigned := make(chan struct{})
	go func() { defer close(resigned); _ = a.Resign(context.Background()) }()
	outliveTTL(t, m)
	require.Empty(t, b.history())
	require.Equal(t, "a", row(t, m).Holder)
	close(end)
	receive(t, resigned, "the term of a ends")
	eventually(t, "b takes over", b.leads)
}

// outliveTTL returns when the holder has renewed for longer than a TTL.
func outliveTTL(t testing.TB, m *storetest.Memory) {
	t.Helper()
	from := row(t, m)
	eventually(t, "the lease is renewed for a TTL", func() bool {
		now := row(t, m)
		require.Equal(t, from.Claim, now.Claim)
		return now.RenewedAt.Sub(from.RenewedAt) > from.TTL
	})
}

func TestGocronTicksExactlyWhileItsReplicaLeadsOverManyTerms(t *testing.T) {
	m := storetest.NewMemory()
	job := func(r *replica) joblease.Scheduler {
		return perTerm(func(s gocron.Scheduler) { add(t, s, r.tick) })
	}
	a := start(t, m, quiet("a", shortTTL), job)
	eventually(t, "a leads", a.leads)
	b := start(t, m, quiet("b", shortTTL), job)
	for range 3 {
		for _, leader := range []*replica{a, b} {
			// Past the TTL for which the other one sits out.
			for range shortTTL/interval + 5 {
				await(t, leader.ticked, leader.name+" ticks")
			}
			leader.resign(t)
		}
	}
	require.NoError(t, a.shutdown())
	require.NoError(t, b.shutdown())
	runs := len(a.runs()) + len(b.runs())

	for _, r := range []*replica{a, b} {
		terms, ticks := r.history(), r.runs()
		require.GreaterOrEqual(t, len(terms), 3)
		for _, x := range terms {
			n := 0
			for ; n < len(ticks) && !ticks[n].After(x.stopped); n++ {
				require.False(t, ticks[n].Before(x.began), "%s ticked while it did not lead", r.name)
			}
			most := int(x.stopped.Sub(x.began)/interval) + 1
			require.LessOrEqual(t, n, most, "ticks ran twice")
			ticks = ticks[n:]
		}
		require.Empty(t, ticks, "%s ticked after its last stop", r.name)
	}
	require.Equal(t, runs, len(a.runs())+len(b.runs()))
}

// A gocron that is stopped at the instant at which a job is due keeps that run,
// and starts it when it is started again. One that is made anew for each term
// has nothing to keep.
func TestAGocronThatIsMadeForEachTermRunsNothingOfTheTermBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; not run with -short")
	}
	var overdue runs
	sch := perTerm(func(s gocron.Scheduler) { overdue.prepare(t, s) })
	for range 50 {
		overdue.begin()
		ctx, cancel := context.WithTimeout(t.Context(), 2*interval) // at a tick
		require.NoError(t, sch.Run(ctx))
		cancel()
	}
	require.Empty(t, overdue.found())
}

func TestALeaseWhoseGocronDidNotStopInTimeIsLeftToExpire(t *testing.T) {
	for _, how := range []string{"resigned", "shut down"} {
		t.Run(how, func(t *testing.T) {
			m := storetest.NewMemory()
			end, ended := make(chan struct{}), make(chan struct{})
			a := start(t, m, quiet("a", shortTTL), func(r *replica) joblease.Scheduler {
				return perTerm(func(s gocron.Scheduler) {
					add(t, s, func() { r.tick(); <-end; close(ended) }, oneRun)
				}, gocron.WithStopTimeout(50*time.Millisecond))
			})
			await(t, a.ticked, "the job runs")
			var overrun *joblease.OverrunError
			if how == "resigned" {
				a.resign(t)
				require.NoError(t, a.shutdown())
			} else {
				require.ErrorAs(t, a.shutdown(), &overrun)
				require.ErrorIs(t, overrun, gocron.ErrStopJobsTimedOut)
			}
			left := row(t, m)
			require.Equal(t, "a", left.Holder, "not released")
			require.True(t, a.told(joblease.EventOverrun))
			require.False(t, a.told(joblease.EventReleased))
			b := start(t, m, quiet("b", shortTTL), func(*replica) joblease.Scheduler { return joblease.Idle() })
			eventually(t, "b takes over", b.leads)
			require.False(t, m.Now().Before(left.ExpiresAt), "not before the expiry")
			close(end)
			receive(t, ended, "the job ends")
		})
	}
}

func TestAGatedJobOfGocronKeepsTheLeaseUntilItHasEnded(t *testing.T) {
	m := storetest.NewMemory()
	end := make(chan struct{})
	a := start(t, m, quiet("a", shortTTL), func(r *replica) joblease.Scheduler {
		return perTerm(func(s gocron.Scheduler) {
			add(t, s, r.Gate(func(context.Context) { r.tick(); <-end }), oneRun)
		}, gocron.WithStopTimeout(50*time.Millisecond))
	})
	await(t, a.ticked, "the job runs")
	b := start(t, m, quiet("b", shortTTL), func(*replica) joblease.Scheduler { return joblease.Idle() })
	resigned := make(chan struct{})
	go func() { defer close(resigned); a.stop(); <-a.done }()
	outliveTTL(t, m)
	require.Empty(t, b.history(), "gocron has given up, the gate has not")
	close(end)
	receive(t, resigned, "the term of a ends")
	eventually(t, "b takes over", b.leads)
}

// runs notes the runs of many jobs that come sooner after a start than any job is
// due.
type runs struct {
	mu    sync.Mutex
	began time.Time
	soon  []time.Duration
}

func (o *runs) prepare(t testing.TB, s gocron.Scheduler) {
	for range 20 {
		add(t, s, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if since := time.Since(o.began); since < interval/2 {
				o.soon = append(o.soon, since)
			}
		})
	}
}

func (o *runs) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = time.Now()
}

func (o *runs) found() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.soon
}
