package joblease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// storm is a network on which statements and answers come late or not at all.
type storm struct {
	*storetest.Memory
	rng  *dice
	calm chan struct{} // closed when it is over
}

// dice are random numbers of a seed, for many goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) roll(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Int64N(n)
}

// between returns a duration from a to b.
func (d *dice) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.roll(int64(b-a)))
}

// travel takes as long as a message does, or reports that it never arrives.
func (s storm) travel(ctx context.Context) bool {
	select {
	case <-s.calm:
		return true
	default:
	}
	d := s.rng.between(0, 2*time.Millisecond)
	switch s.rng.roll(20) {
	case 0: // lost
		<-ctx.Done()
		return false
	case 1: // late
		d = s.rng.between(0, 3*time.Second)
	}
	time.Sleep(d) // a message that is under way does not notice the end of ctx
	return true
}

func (s storm) send(ctx context.Context, statement func(context.Context) error) error {
	result := make(chan error, 1)
	go func() {
		if !s.travel(ctx) {
			return
		}
		err := statement(context.WithoutCancel(ctx))
		if s.travel(ctx) {
			result <- err
		}
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s storm) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	got := make(chan joblease.Grant, 1)
	err := s.send(ctx, func(ctx context.Context) error {
		g, err := s.Memory.Acquire(ctx, c)
		got <- g
		return err
	})
	if err != nil {
		return joblease.Grant{}, err
	}
	return <-got, nil
}

func (s storm) Renew(ctx context.Context, g joblease.Grant) error {
	return s.send(ctx, func(ctx context.Context) error { return s.Memory.Renew(ctx, g) })
}

func (s storm) Release(ctx context.Context, g joblease.Grant) error {
	return s.send(ctx, func(ctx context.Context) error { return s.Memory.Release(ctx, g) })
}

// witness counts who works at the same time.
type witness struct {
	mu       sync.Mutex
	working  int
	overlaps []string
	terms    int
	tokens   []int64
}

func (w *witness) Run(ctx context.Context) error {
	g, _ := joblease.GrantFrom(ctx)
	w.mu.Lock()
	w.working++
	w.terms++
	w.tokens = append(w.tokens, g.Token)
	if w.working > 1 {
		w.overlaps = append(w.overlaps, fmt.Sprintf("%d at %v", w.working, time.Now()))
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.working--
	w.mu.Unlock()
	return nil
}

// Four replicas, lost and late messages, partitions, and a database clock that is
// stepped by 0.7 s to an hour, either way, every eight seconds. No step meets a
// first look, and no two steps cancel out: these are the limits that the
// documentation states.
func TestNoStepOfTheDatabasesClockMakesTwoTermsOverlap(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 6
	}
	terms := 0
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { terms += simulate(t, seed) })
		})
	}
	require.Greater(t, terms, int(seeds)*25, "a storm in which nothing changes hands shows nothing")
}

func simulate(t *testing.T, seed uint64) (terms int) {
	rng := &dice{r: rand.New(rand.NewPCG(seed, 1))}
	m := storetest.NewMemory()
	net := storm{m, rng, make(chan struct{})}
	w := &witness{}
	ctx, cancel := context.WithCancel(t.Context())
	var replicas sync.WaitGroup
	defer replicas.Wait()
	defer cancel()
	lines := make([]*line, 4)
	sups := make([]*joblease.Supervisor, 4)
	for i := range lines {
		lines[i] = newLine(m)
		cfg := quiet(fmt.Sprint("replica ", i))
		cfg.TTL = 5 * time.Second
		sup, err := joblease.NewSupervisor(cut{net, lines[i]}, "job", w, cfg)
		require.NoError(t, err)
		sups[i] = sup
		replicas.Go(func() { _ = sup.Run(ctx) })
	}
	time.Sleep(20 * time.Second) // the first looks

	var steps []time.Duration
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
		time.Sleep(8 * time.Second)
		step := rng.between(700*time.Millisecond, time.Hour)
		if rng.roll(2) == 0 {
			step = rng.between(700*time.Millisecond, 12*time.Second) // about a TTL is the worst
		}
		if rng.roll(2) == 0 {
			step = -step
		}
		if !cancelsOut(steps, step) {
			steps = append(steps, step)
			m.Step(step)
		}
		// A partition of one replica, the holder more often than not, from nothing
		// to some TTLs.
		l := lines[rng.roll(4)]
		for i, sup := range sups {
			if sup.Status().Held && rng.roll(3) > 0 {
				l = lines[i]
			}
		}
		l.set([]fault{refused, blackholed, answerLost}[rng.roll(3)])
		time.AfterFunc(rng.between(0, 15*time.Second), func() { l.set(none) })
	}
	close(net.calm)
	time.Sleep(30 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, 1, w.working, "after the last fault there is one holder again")
	require.Empty(t, w.overlaps)
	for i := 1; i < len(w.tokens); i++ {
		require.Greater(t, w.tokens[i], w.tokens[i-1])
	}
	return w.terms
}

// cancelsOut reports whether step and some steps just before it add up to about
// nothing, so that a candidate that looks before and after them sees none.
func cancelsOut(steps []time.Duration, step time.Duration) bool {
	sum := step
	for i := len(steps) - 1; i >= 0; i-- {
		if sum += steps[i]; sum.Abs() < 700*time.Millisecond {
			return true
		}
	}
	return false
}

// cut is a storm of which one replica can also be cut off.
type cut struct {
	storm
	line *line
}

func (c cut) Acquire(ctx context.Context, claim joblease.Claim) (g joblease.Grant, err error) {
	err = c.line.send(ctx, func() (err error) { g, err = c.storm.Acquire(ctx, claim); return err })
	if err != nil {
		return joblease.Grant{}, err
	}
	return g, nil
}

func (c cut) Renew(ctx context.Context, g joblease.Grant) error {
	return c.line.send(ctx, func() error { return c.storm.Renew(ctx, g) })
}

func (c cut) Release(ctx context.Context, g joblease.Grant) error {
	return c.line.send(ctx, func() error { return c.storm.Release(ctx, g) })
}

func TestAClockSteppedForwardDoesNotTakeALeaseFromALivingHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		synctest.Wait()
		b := start(t, m, "b")
		for range 100 {
			time.Sleep(time.Minute)
			m.Step(time.Hour)
		}
		require.Empty(t, b.probe.history())
		require.Len(t, a.probe.history(), 1)
	})
}

func TestAClockSteppedBackDoesNotStallFailover(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			m.SetNotify(false) // so that the standby looks often
			a := start(t, m, "a")
			synctest.Wait()
			b := start(t, m, "b")
			time.Sleep(time.Minute + rand.N(ttl))
			a.kill()
			written := time.Now().Add(row(t, m).RenewedAt.Sub(m.Now()))
			m.Step(-time.Hour)
			time.Sleep(2 * ttl)
			require.True(t, b.probe.runs(), "after the whole TTL and the Margin, whatever the database says")
			require.Greater(t, b.probe.history()[0].started.Sub(written), ttl)
		})
	}
}
