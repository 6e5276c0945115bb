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

// seeds calls f in a bubble for each of n seeds, or a few with -short.
func seeds(t *testing.T, n uint64, f func(t *testing.T, rng *dice)) {
	if testing.Short() {
		n = 2
	}
	for seed := range n {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, &dice{r: rand.New(rand.NewPCG(seed, 2))}) })
		})
	}
}

// A day of a job that runs each minute on up to five replicas, whose clocks are up
// to five minutes off, which join and leave all the time, half of them within two
// milliseconds of a tick, by a shutdown or by a kill. One at least is always
// there, never the same one for long.
func TestEachTickOfADayRunsOnceThoughReplicasComeAndGo(t *testing.T) {
	for name, job := range map[string]joblease.Job{
		"skip and drop":      {},
		"latest":             {Missed: 1},
		"all and run again":  {Missed: joblease.MaxMissed, Again: true},
		"skip and run again": {Again: true},
	} {
		t.Run(name, func(t *testing.T) {
			seeds(t, 8, func(t *testing.T, rng *dice) { simulateGuards(t, rng, job) })
		})
	}
}

func simulateGuards(t *testing.T, rng *dice, job joblease.Job) {
	const day, interval = 24 * time.Hour, time.Minute
	m, b := storetest.NewMemory(), &book{}
	long := func() time.Duration {
		if rng.roll(2) > 0 {
			return time.Duration(rng.roll(int64(100 * time.Millisecond)))
		}
		return time.Duration(rng.roll(int64(20 * time.Second)))
	}
	var up []*guardian
	n := 0
	join := func() {
		off := rng.between(-5*time.Minute, 5*time.Minute)
		g := newGuardian(t, m, fmt.Sprint(n))
		n++
		g.line.setDelay(rng.between(0, 3*time.Millisecond))
		g.ShiftWall(func() time.Duration { return off })
		job := job
		job.Name, job.Schedule, job.Run = "job", joblease.Interval(interval, 0), g.job(b, long)
		up = append(up, g.launch(t, job))
		time.Sleep(5 * time.Millisecond) // it waits for the next tick
	}
	time.Sleep(interval / 2)
	join()
	first := time.Since(epoch).Truncate(interval) + interval
	for time.Since(epoch) < day {
		pause := rng.between(time.Second, 4*interval)
		if rng.roll(2) == 0 { // at a tick, give or take
			at := (time.Since(epoch) + pause).Truncate(interval) + interval
			pause = at + rng.between(-2*time.Millisecond, 2*time.Millisecond) - time.Since(epoch)
		}
		time.Sleep(pause)
		if len(up) == 1 || len(up) < 5 && rng.roll(2) == 0 {
			join()
			continue
		}
		i := rng.roll(int64(len(up)))
		g := up[i]
		up = append(up[:i], up[i+1:]...)
		if rng.roll(3) > 0 {
			g.killed()
		} else {
			g.stop()
		}
	}
	time.Sleep(time.Since(epoch).Truncate(interval) + interval + interval/2 - time.Since(epoch))
	last := time.Since(epoch).Truncate(interval)
	for _, g := range up {
		require.NoError(t, g.shutdown())
	}

	runs := b.all()
	require.Empty(t, b.overlapped())
	called, done := map[time.Duration]int{}, map[time.Duration]int{}
	cuts, reruns := 0, 0
	for i, r := range runs {
		called[r.tick]++
		if !r.cut {
			done[r.tick]++
		} else {
			cuts++
		}
		require.GreaterOrEqual(t, r.began, r.tick)
		if i > 0 {
			require.GreaterOrEqual(t, r.tick, runs[i-1].tick)
			if r.tick == runs[i-1].tick {
				reruns++
				require.True(t, job.Again && runs[i-1].cut, "%v was run again", r.tick)
			}
		}
	}
	for tick := first; tick <= last; tick += interval {
		require.GreaterOrEqual(t, called[tick], 1, "%v was not run", tick)
		if job.Again && tick < last {
			require.Equal(t, 1, done[tick], "%v was not run to its end once", tick)
		}
	}
	require.Equal(t, int((last-first)/interval)+1, len(called))
	require.Greater(t, cuts, 5, "a day in which nothing is interrupted shows nothing")
	require.True(t, !job.Again || reruns > 5)
}

// An hourly job on three replicas that were started at random minutes, for three
// days, in each of the ways that there are.
func TestAnHourlyJobOnThreeReplicasRunsOnceAnHour(t *testing.T) {
	const days = 3 * 24 * time.Hour
	for name, loop := range map[string]func(ctx context.Context, g *guardian, off time.Duration, fn func(context.Context) error){
		"Run": func(ctx context.Context, g *guardian, _ time.Duration, fn func(context.Context) error) {
			_ = g.Run(ctx, joblease.Job{Name: "job", Schedule: joblease.Interval(time.Hour, 0), Run: fn})
		},
		"Wrap": func(ctx context.Context, g *guardian, off time.Duration, fn func(context.Context) error) {
			job, err := g.Wrap(ctx, "job", joblease.Interval(time.Hour, 0), fn)
			if err != nil {
				panic(err)
			}
			timer(ctx, joblease.Interval(time.Hour, 0), off, job)()
		},
		"Slot": func(ctx context.Context, g *guardian, _ time.Duration, fn func(context.Context) error) {
			tick := time.NewTicker(time.Hour)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					if _, err := g.Slot(ctx, "job", time.Hour, fn); err != nil && ctx.Err() == nil {
						panic(err)
					}
				case <-ctx.Done():
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			seeds(t, 40, func(t *testing.T, rng *dice) {
				m, b := storetest.NewMemory(), &book{}
				ctx, cancel := context.WithTimeout(t.Context(), days)
				defer cancel()
				var replicas sync.WaitGroup
				for i := range 3 {
					replicas.Go(func() {
						start, off := rng.between(0, time.Hour), rng.between(-5*time.Minute, 5*time.Minute)
						g := newGuardian(t, m, fmt.Sprint(i))
						g.ShiftWall(func() time.Duration { return off })
						time.Sleep(start)
						loop(ctx, g, off, b.job(g.name, func() time.Duration { return rng.between(0, 2*time.Second) }))
					})
				}
				replicas.Wait()
				ticks := b.ticks()
				requireEach(t, time.Hour, ticks[0], ticks[len(ticks)-1], ticks)
				require.InDelta(t, days/time.Hour, len(ticks), 2)
			})
		})
	}
}

// Plain tickers of one second, of any number and any phase, whose wake-ups jitter
// and which are restarted now and then, for ten minutes.
func TestPlainTickersOfAnyPhaseRunEachSlotOnce(t *testing.T) {
	const interval = time.Second
	seeds(t, 40, func(t *testing.T, rng *dice) {
		m, b := storetest.NewMemory(), &book{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var replicas sync.WaitGroup
		for i := range 1 + rng.roll(4) {
			replicas.Go(func() {
				g := newGuardian(t, m, fmt.Sprint(i))
				time.Sleep(rng.between(0, interval))
				for ctx.Err() == nil {
					tick := time.NewTicker(interval)
					life := time.Now().Add(rng.between(20*interval, 200*interval))
					for ctx.Err() == nil && (i == 0 || time.Now().Before(life)) { // the first is never restarted
						<-tick.C
						time.Sleep(rng.between(0, interval/10))
						_, err := g.Slot(t.Context(), "job", interval, b.job(g.name, func() time.Duration { return rng.between(0, interval/50) }))
						if err != nil && i == 0 {
							require.ErrorIs(t, err, joblease.ErrHeld)
						}
					}
					tick.Stop()
					time.Sleep(rng.between(0, 3*interval))
				}
			})
		}
		replicas.Wait()
		ticks := b.ticks()
		require.Empty(t, b.overlapped())
		requireSlots(t, interval, ticks)
		require.InDelta(t, 600, len(ticks), 5)
	})
}

// Three replicas of a job each ten seconds for six hours on a network that loses
// and delays messages, with partitions, and a database whose clock is stepped. What
// must hold through all of it: no tick runs twice, no two runs overlap, and when
// the weather clears, all ticks run.
func TestNoTickRunsTwiceInAStorm(t *testing.T) {
	for _, job := range []joblease.Job{{}, {Missed: 1}, {Missed: 100}} {
		t.Run(fmt.Sprint(job.Missed, " missed"), func(t *testing.T) {
			seeds(t, 8, func(t *testing.T, rng *dice) {
				m, b := storetest.NewMemory(), &book{}
				net := storm{m, rng, make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				var replicas sync.WaitGroup
				defer replicas.Wait()
				defer cancel()
				var lines []*line
				for i := range 3 {
					l := newLine(m)
					lines = append(lines, l)
					cfg := quiet(fmt.Sprint(i))
					cfg.TTL = 5 * time.Second
					g, err := joblease.NewGuard(cut{net, l}, cfg)
					require.NoError(t, err)
					job := job
					job.Name, job.Schedule = "job", joblease.Interval(10*time.Second, 0)
					job.Run = b.job(fmt.Sprint(i), func() time.Duration { return rng.between(0, 8*time.Second) })
					replicas.Go(func() { _ = g.Run(ctx, job) })
				}
				time.Sleep(20 * time.Second)
				var steps []time.Duration
				for end := time.Now().Add(6 * time.Hour); time.Now().Before(end); time.Sleep(rng.between(20*time.Second, 3*time.Minute)) {
					l := lines[rng.roll(3)]
					l.set([]fault{refused, blackholed, answerLost}[rng.roll(3)])
					time.AfterFunc(rng.between(0, 30*time.Second), func() { l.set(none) })
					step := rng.between(-12*time.Second, 12*time.Second)
					if rng.roll(8) == 0 && !cancelsOut(steps, step) {
						steps = append(steps, step)
						m.Step(step)
					}
				}
				close(net.calm)
				time.Sleep(10 * time.Minute)
				require.Empty(t, b.overlapped())
				ticks := b.ticks()
				require.Greater(t, len(ticks), 1000)
				for i := 1; i < len(ticks); i++ {
					require.Greater(t, ticks[i], ticks[i-1])
				}
				fair := ticks[len(ticks)-30:]
				requireEach(t, 10*time.Second, fair[0], fair[29], fair)
			})
		})
	}
}
