package joblease_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// epoch is when a synctest bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// run is one call of a job.
type run struct {
	tick    time.Duration // since epoch
	replica string
	began   time.Duration // since epoch
	cut     bool          // told to stop before it was done
}

// book notes the runs of one job on all replicas, and whether two overlap.
type book struct {
	mu       sync.Mutex
	runs     []run
	active   int
	overlaps []string
}

// job is the work of one replica: it takes as long as long says.
func (b *book) job(replica string, long func() time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		g, ok := joblease.GrantFrom(ctx)
		if !ok || g.Tick.IsZero() {
			panic("a run without a tick")
		}
		b.mu.Lock()
		i := len(b.runs)
		b.runs = append(b.runs, run{tick: g.Tick.Sub(epoch), replica: replica, began: time.Since(epoch)})
		if b.active++; b.active > 1 {
			b.overlaps = append(b.overlaps, fmt.Sprint(g.Tick))
		}
		b.mu.Unlock()
		var err error
		if d := long(); d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.active--
		b.runs[i].cut = err != nil
		return err
	}
}

func (b *book) all() []run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.runs)
}

// ticks returns the ticks in the order of their runs.
func (b *book) ticks() (ticks []time.Duration) {
	for _, r := range b.all() {
		ticks = append(ticks, r.tick)
	}
	return ticks
}

func (b *book) overlapped() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.overlaps)
}

// every returns the multiples of d from a to b, both included.
func every(d, a, b time.Duration) (ticks []time.Duration) {
	for t := a; t <= b; t += d {
		ticks = append(ticks, t)
	}
	return ticks
}

// requireEach requires that ticks are those from a to b, in order.
func requireEach(t *testing.T, d, a, b time.Duration, ticks []time.Duration) {
	t.Helper()
	for i, want := 0, a; want <= b; i, want = i+1, want+d {
		require.Less(t, i, len(ticks), "%v is missing", want)
		require.Equal(t, want, ticks[i], "the tick after %v", ticks[max(0, i-1)])
	}
	require.Len(t, ticks, int((b-a)/d)+1)
}

// requireSlots requires that ticks are slots of length d, without a gap, except for
// one: wake-ups that first come at the end of slots and later at their beginning
// are fewer than the slots by one.
func requireSlots(t *testing.T, d time.Duration, ticks []time.Duration) {
	t.Helper()
	gaps := 0
	for i := 1; i < len(ticks); i++ {
		if ticks[i] == ticks[i-1]+2*d {
			gaps++
			continue
		}
		require.Equal(t, ticks[i-1]+d, ticks[i])
	}
	require.LessOrEqual(t, gaps, 1)
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// guardian is a Guard on a line of its own.
type guardian struct {
	*joblease.Guard
	name   string
	line   *line
	events *journal
	stop   context.CancelFunc
	dead   context.Context // ends with a kill
	die    context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done is closed
}

func newGuardian(t *testing.T, m *storetest.Memory, name string, change ...func(*joblease.Config)) *guardian {
	t.Helper()
	g := &guardian{name: name, line: newLine(m), events: &journal{}}
	cfg := quiet(name)
	cfg.Observe = g.events.observe
	for _, c := range change {
		c(&cfg)
	}
	g.dead, g.die = context.WithCancel(context.Background())
	t.Cleanup(g.die)
	var err error
	g.Guard, err = joblease.NewGuard(g.line, cfg)
	require.NoError(t, err)
	return g
}

// launch calls Run. The test's end stops it and waits for it.
func (g *guardian) launch(t *testing.T, jobs ...joblease.Job) *guardian {
	var ctx context.Context
	ctx, g.stop = context.WithCancel(context.Background())
	done := make(chan struct{})
	g.done = done
	go func() {
		defer close(done)
		g.err = g.Run(ctx, jobs...)
	}()
	t.Cleanup(func() { g.stop(); <-done })
	return g
}

func (g *guardian) shutdown() error {
	g.stop()
	<-g.done
	return g.err
}

// kill ends the replica as SIGKILL does, as far as the others can see.
func (g *guardian) kill() {
	g.killed()
	_ = g.shutdown()
}

// killed begins a kill.
func (g *guardian) killed() {
	g.line.set(refused)
	g.die()
	g.stop()
}

// job is the work of the replica, which ends with its process.
func (g *guardian) job(b *book, long func() time.Duration) func(context.Context) error {
	fn := b.job(g.name, long)
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(g.dead, cancel)()
		return fn(ctx)
	}
}

// fleet runs the job of that change on replicas of these names.
func fleet(t *testing.T, m *storetest.Memory, b *book, long time.Duration, s joblease.Schedule, names string, change ...func(*joblease.Job)) (replicas []*guardian) {
	for _, name := range names {
		g := newGuardian(t, m, string(name))
		job := joblease.Job{Name: "job", Schedule: s, Run: g.job(b, always(long))}
		for _, c := range change {
			c(&job)
		}
		replicas = append(replicas, g.launch(t, job))
	}
	return replicas
}
