package joblease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

func discard(context.Context) error { return nil }

// timer is a scheduler as robfig/cron is: it goes by a wall clock that may be off,
// and starts each job on a goroutine of its own.
func timer(ctx context.Context, s joblease.Schedule, off time.Duration, job func()) (wait func()) {
	var jobs sync.WaitGroup
	jobs.Go(func() {
		for {
			wall := time.Now().Add(off)
			next := time.NewTimer(s.Next(wall).Sub(wall))
			select {
			case <-next.C:
				jobs.Go(job)
			case <-ctx.Done():
				next.Stop()
				return
			}
		}
	})
	return jobs.Wait
}

func TestAWrappedJobRunsOnceATickWhateverTheClocksOfTheReplicasShow(t *testing.T) {
	for _, offs := range [][]time.Duration{
		{0, 0, 0},
		{-5 * time.Minute, 5 * time.Minute, 300 * time.Millisecond},
		{-5 * time.Minute},
		{5 * time.Minute},
		{5 * time.Minute, 5*time.Minute + time.Second},
	} {
		for _, interval := range []time.Duration{time.Minute, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				m, b := storetest.NewMemory(), &book{}
				time.Sleep(10*time.Minute + 30*time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				s := joblease.Interval(interval, 0)
				for i, off := range offs {
					g := newGuardian(t, m, string(rune('a'+i)))
					g.ShiftWall(func() time.Duration { return off })
					job, err := g.Wrap(ctx, "job", s, b.job(g.name, always(time.Second)))
					require.NoError(t, err)
					defer timer(ctx, s, off, job)()
				}
				time.Sleep(12*time.Hour + time.Second)
				cancel()
				synctest.Wait()
				ticks := b.ticks()
				require.InDelta(t, 12*time.Hour/interval, len(ticks), 6)
				requireEach(t, interval, ticks[0], ticks[len(ticks)-1], ticks)
				for _, r := range b.all() {
					require.GreaterOrEqual(t, r.began, r.tick, "never early by the database's clock")
					if len(offs) > 1 {
						require.Less(t, r.began-r.tick, time.Second)
					}
				}
			})
		}
	}
}

func TestATickIsNotRefusedForARunThatEndsBeforeItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g, hourly := newGuardian(t, m, "a"), joblease.Interval(time.Hour, 0)
		const ahead = 5 * time.Minute
		g.ShiftWall(func() time.Duration { return ahead })
		ctx, cancel := context.WithCancel(t.Context())
		job, err := g.Wrap(ctx, "job", hourly, b.job("a", always(57*time.Minute)))
		require.NoError(t, err)
		wait := timer(ctx, hourly, ahead, job)
		time.Sleep(6 * time.Hour)
		cancel()
		wait()
		requireEach(t, time.Hour, time.Hour, 5*time.Hour, b.ticks()[:5])
	})
}

func TestACallWithoutATickDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		job, err := g.Wrap(t.Context(), "job", minutely, b.job("a", always(0)))
		require.NoError(t, err)
		job()
		time.Sleep(30 * time.Second)
		job()
		require.Zero(t, g.line.statements())
		time.Sleep(5*time.Minute + 10*time.Second)
		job()
		job()
		require.Equal(t, []time.Duration{5 * time.Minute}, b.ticks(), "the latest, once")
		time.Sleep(20*time.Second - time.Second/2)
		job()
		require.Equal(t, []time.Duration{5 * time.Minute, 6 * time.Minute}, b.ticks(), "a timer that is a little early")
		require.Equal(t, 6*time.Minute, time.Since(epoch), "waits")
	})
}

func TestAWallClockThatIsSetBackDoesNotSilenceAWrappedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g, off := newGuardian(t, m, "a"), 3*time.Hour
		g.ShiftWall(func() time.Duration { return off })
		job, err := g.Wrap(t.Context(), "job", minutely, b.job("a", always(0)))
		require.NoError(t, err)
		off = 0
		for range 3 {
			time.Sleep(time.Minute)
			job()
		}
		requireEach(t, time.Minute, time.Minute, 3*time.Minute, b.ticks())
	})
}

func TestAWrappedJobAsksAFailingStoreAgainButNotBeyondTheNextTick(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m, b := storetest.NewMemory(), &book{}
			g := newGuardian(t, m, "a")
			job, err := g.Wrap(t.Context(), "job", joblease.Interval(time.Hour, 0), b.job("a", always(0)))
			require.NoError(t, err)
			time.Sleep(time.Hour)
			g.line.set(refused)
			time.AfterFunc(outage, func() { g.line.set(none) })
			job()
			synctest.Wait()
			if outage < ttl {
				require.Len(t, b.ticks(), 1)
				return
			}
			require.Empty(t, b.ticks())
			require.Less(t, time.Since(epoch)-time.Hour, 2*ttl)
			missed := g.events.of(joblease.EventTickMissed)
			require.Len(t, missed, 1)
			require.Equal(t, epoch.Add(time.Hour), missed[0].Tick)
			require.ErrorIs(t, missed[0].Err, errCut)
			time.Sleep(time.Hour)
			job()
			require.Equal(t, []time.Duration{2 * time.Hour}, b.ticks())
		})
	}
}

func TestTheEndOfItsContextEndsAWrappedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		ctx, cancel := context.WithCancel(t.Context())
		job, err := g.Wrap(ctx, "job", minutely, b.job("a", always(time.Hour)))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		time.AfterFunc(time.Second, cancel)
		job()
		require.Equal(t, 91*time.Second, time.Since(epoch), "after StopTimeout")
		synctest.Wait()
		require.True(t, b.all()[0].cut)
		require.False(t, row(t, m).TickDone)
		require.Len(t, g.events.of(joblease.EventOverrun), 1)
		require.Empty(t, g.events.of(joblease.EventWorkFailed), "it was told to stop")
		time.Sleep(time.Minute)
		job()
		require.Len(t, b.all(), 1)
	})
}

func TestAWrappedJobTellsItsErrorAndItsPanicGoesOn(t *testing.T) {
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		panics := false
		job, err := g.Wrap(t.Context(), "job", minutely, func(context.Context) error {
			if panics {
				panic(boom)
			}
			return boom
		})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		job()
		panics = true
		time.Sleep(time.Minute)
		require.Panics(t, job)
		require.False(t, row(t, m).Held())
		synctest.Wait()
		failed := g.events.of(joblease.EventWorkFailed)
		require.Len(t, failed, 2)
		require.ErrorIs(t, failed[1].Err, boom)
		_, err = g.Wrap(t.Context(), "job", minutely, nil)
		require.ErrorAs(t, err, new(*joblease.ConfigError))
		_, err = g.Wrap(t.Context(), "", minutely, discard)
		require.ErrorAs(t, err, new(*joblease.ConfigError))
	})
}
