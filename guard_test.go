package joblease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

func TestATickRunsOnOneReplicaAndNeverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		at := time.Now()
		var together sync.WaitGroup
		for _, name := range "abcdefgh" {
			g := newGuardian(t, m, string(name))
			together.Go(func() {
				_, err := g.Once(t.Context(), "job", at, b.job(g.name, always(time.Second)))
				if err != nil {
					t.Error(err)
				}
			})
		}
		together.Wait()
		require.Equal(t, []time.Duration{0}, b.ticks())
		for _, late := range []time.Duration{time.Nanosecond, time.Second, ttl, time.Hour, 10000 * time.Hour} {
			time.Sleep(late)
			for _, tick := range []time.Time{at, at.Add(-time.Minute), at.In(time.FixedZone("", 3600)), at.Add(999)} {
				g := newGuardian(t, m, "late")
				ran, err := g.Once(t.Context(), "job", tick, b.job("late", always(0)))
				require.NoError(t, err)
				require.False(t, ran)
			}
		}
		require.Len(t, b.all(), 1)
		r := row(t, m)
		require.False(t, r.Held(), "the lease is free")
		require.Equal(t, at.UTC(), r.Tick)
		require.True(t, r.TickDone)
	})
}

func TestAJobShorterThanTheSkewOfItsReplicasRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		var replicas sync.WaitGroup
		for i, name := range "abc" {
			g := newGuardian(t, m, string(name))
			replicas.Go(func() {
				for n := range 60 {
					at := epoch.Add(time.Duration(n) * time.Second)
					time.Sleep(time.Until(at.Add(time.Duration(i) * 300 * time.Millisecond))) // when it wakes up
					if _, err := g.Once(t.Context(), "job", at, b.job(g.name, always(time.Millisecond))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		replicas.Wait()
		requireEach(t, time.Second, 0, 59*time.Second, b.ticks())
	})
}

// tickers runs a plain ticker loop on each replica, started at these phases.
func tickers(t *testing.T, m *storetest.Memory, b *book, interval, length time.Duration, jitter func() time.Duration, phases ...time.Duration) {
	var replicas sync.WaitGroup
	for i, phase := range phases {
		g := newGuardian(t, m, string(rune('a'+i)))
		replicas.Go(func() {
			time.Sleep(phase)
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for time.Since(epoch) < length {
				<-tick.C
				time.Sleep(jitter())
				if _, err := g.Slot(t.Context(), "job", interval, b.job(g.name, always(0))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	replicas.Wait()
}

func TestThreeTickersOfAnyPhaseRunEachSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		tickers(t, m, b, time.Second, 60*time.Second, always(0), 0, 300*time.Millisecond, 600*time.Millisecond)
		requireEach(t, time.Second, time.Second, 60*time.Second, b.ticks()[:60])
		require.LessOrEqual(t, len(b.ticks()), 61)
	})
}

func TestALoneTickerSkipsNoSlot(t *testing.T) {
	for _, phase := range []time.Duration{0, 20 * time.Millisecond, 400 * time.Millisecond, 990 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			m, b := storetest.NewMemory(), &book{}
			jitter := func() time.Duration { return rand.N(50 * time.Millisecond) }
			tickers(t, m, b, time.Second, 60*time.Second, jitter, phase)
			ticks := b.ticks()
			require.InDelta(t, 60, len(ticks), 1)
			requireSlots(t, time.Second, ticks)
		})
	}
}

func TestATickIsRefusedWhileAnEarlierOneRunsHereOrElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		a, c := newGuardian(t, m, "a"), newGuardian(t, m, "c")
		done := make(chan struct{})
		go func() {
			defer close(done)
			ran, err := a.Once(t.Context(), "job", epoch, b.job("a", always(time.Hour)))
			if !ran || err != nil {
				t.Error(ran, err)
			}
		}()
		time.Sleep(time.Minute)
		for _, g := range []*guardian{a, c} {
			ran, err := g.Once(t.Context(), "job", epoch, b.job(g.name, always(0)))
			require.NoError(t, err, "it is the one that runs")
			require.False(t, ran)
			ran, err = g.Once(t.Context(), "job", epoch.Add(time.Minute), b.job(g.name, always(0)))
			require.ErrorIs(t, err, joblease.ErrHeld)
			require.False(t, ran)
			ran, err = g.Slot(t.Context(), "job", time.Second, b.job(g.name, always(0)))
			require.ErrorIs(t, err, joblease.ErrHeld)
			require.False(t, ran)
		}
		ran, err := a.Once(t.Context(), "other", epoch.Add(time.Minute), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, ran, "another job does not care")
		<-done
		ran, err = c.Once(t.Context(), "job", epoch.Add(time.Minute), b.job("c", always(0)))
		require.NoError(t, err, "it was not claimed")
		require.True(t, ran)
		require.Empty(t, b.overlapped())
	})
}

func TestATickWhoseClaimFailsIsNotRun(t *testing.T) {
	for _, f := range []fault{refused, blackholed, answerLost} {
		synctest.Test(t, func(t *testing.T) {
			m, b := storetest.NewMemory(), &book{}
			g := newGuardian(t, m, "a")
			g.line.set(f)
			ran, err := g.Once(t.Context(), "job", epoch, b.job("a", always(0)))
			require.Error(t, err)
			require.NotErrorIs(t, err, joblease.ErrHeld)
			require.False(t, ran)
			ran, err = g.Slot(t.Context(), "slots", time.Second, b.job("a", always(0)))
			require.Error(t, err)
			require.False(t, ran)
			require.Empty(t, b.all())
			g.line.set(none)
			time.Sleep(time.Second)
			ran, err = g.Once(t.Context(), "job", epoch, b.job("a", always(0)))
			require.NoError(t, err, "the same tick finds a grant whose answer was lost")
			require.True(t, ran)
			for range 2 {
				ran, err = g.Slot(t.Context(), "slots", time.Second, b.job("a", always(0)))
				require.NoError(t, err)
				require.True(t, ran, "a grant of a slot that is over is no grant")
				require.Equal(t, time.Since(epoch).Truncate(time.Second), b.ticks()[len(b.ticks())-1])
				time.Sleep(time.Second)
			}
		})
	}
}

func TestAClaimWhoseAnswerWasLostDoesNotBecomeTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		g.line.set(answerLost)
		_, err := g.Once(t.Context(), "job", epoch, b.job("a", always(0)))
		require.Error(t, err)
		g.line.set(none)
		time.Sleep(time.Second)
		ran, err := g.Once(t.Context(), "job", epoch.Add(time.Second), b.job("a", always(0)))
		require.NoError(t, err)
		require.True(t, ran)
		require.Equal(t, []time.Duration{time.Second}, b.ticks())
	})
}

func TestATickThatHasNotComeIsWaitedForByTheDatabasesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		m.Step(-5 * time.Minute)
		ran, err := g.Once(t.Context(), "job", epoch, b.job("a", always(0)))
		require.NoError(t, err)
		require.True(t, ran)
		require.Equal(t, 5*time.Minute, time.Since(epoch))
		require.Equal(t, epoch, m.Now())

		ran, err = g.Once(t.Context(), "job", epoch.Add(time.Hour), b.job("a", always(0)))
		var early *joblease.TickError
		require.ErrorAs(t, err, &early)
		require.False(t, early.Due())
		require.False(t, ran)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ran, err = g.Once(ctx, "job", epoch.Add(time.Minute), b.job("a", always(0)))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, ran)
	})
}

func TestADeadReplicasLeaseIsTakenOverForTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		a, c := newGuardian(t, m, "a"), newGuardian(t, m, "c")
		_, err := c.Once(t.Context(), "job", epoch, b.job("c", always(0))) // it has looked before
		require.NoError(t, err)
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, func() { a.line.set(refused); cancel() })
		ran, err := a.Once(ctx, "job", epoch.Add(time.Hour), b.job("a", always(time.Hour)))
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, ran)

		_, err = c.Once(t.Context(), "job", epoch.Add(time.Hour+time.Minute), b.job("c", always(0)))
		require.ErrorIs(t, err, joblease.ErrHeld, "it may be alive")
		time.Sleep(time.Hour)
		ran, err = c.Once(t.Context(), "job", epoch.Add(2*time.Hour), b.job("c", always(0)))
		require.NoError(t, err)
		require.True(t, ran)
	})
}

func TestTheErrorOfARunIsReturnedAndItsPanicGoesOnAfterTheRelease(t *testing.T) {
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		ran, err := g.Once(t.Context(), "job", epoch, func(context.Context) error { return boom })
		require.ErrorIs(t, err, boom)
		require.True(t, ran)
		require.True(t, row(t, m).TickDone)
		time.Sleep(time.Second)
		func() {
			defer func() {
				var p *joblease.PanicError
				require.ErrorAs(t, recover().(error), &p)
				require.Equal(t, boom, p.Value)
				require.False(t, row(t, m).Held())
				require.True(t, row(t, m).TickDone)
			}()
			_, _ = g.Once(t.Context(), "job", epoch.Add(time.Second), func(context.Context) error { panic(boom) })
		}()
		time.Sleep(time.Second)
		ran, err = g.Once(t.Context(), "job", epoch.Add(2*time.Second), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
	})
}

func TestARunIsToldThatItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		time.AfterFunc(time.Minute, func() { theft(m) })
		ran, err := g.Once(t.Context(), "job", epoch, func(ctx context.Context) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), joblease.ErrLost)
			return errCut
		})
		require.True(t, ran)
		require.ErrorIs(t, err, errCut)
		require.ErrorIs(t, err, joblease.ErrLost)
	})
}

func TestARunThatItsCallerCutShortIsNotFinished(t *testing.T) {
	for _, result := range []error{nil, errCut} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			g := newGuardian(t, m, "a")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ran, err := g.Once(ctx, "job", epoch, func(ctx context.Context) error { <-ctx.Done(); return result })
			require.True(t, ran)
			require.ErrorIs(t, err, result)
			require.False(t, row(t, m).Held())
			require.Equal(t, result == nil, row(t, m).TickDone)
		})
	}
}

func TestARunThatDoesNotStopOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ran, err := g.Once(ctx, "job", epoch, func(context.Context) error { time.Sleep(time.Hour); return nil })
		require.True(t, ran)
		require.ErrorAs(t, err, new(*joblease.OverrunError))
		require.Equal(t, 90*time.Second, time.Since(epoch))
		ran, err = g.Once(t.Context(), "job", epoch.Add(time.Minute), func(context.Context) error { return nil })
		require.ErrorIs(t, err, joblease.ErrHeld, "it still runs here")
		require.False(t, ran)
		time.Sleep(time.Hour)
		ran, err = g.Once(t.Context(), "job", epoch.Add(time.Minute), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
	})
}

func TestAWonTickCostsTwoStatementsAndALostOneOneThatWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		a, c := newGuardian(t, m, "a"), newGuardian(t, m, "c")
		for n := range 100 {
			at := epoch.Add(time.Duration(n) * time.Second)
			ran, err := a.Once(t.Context(), "job", at, b.job("a", always(ttl/50)))
			require.NoError(t, err)
			require.True(t, ran)
			before := row(t, m)
			ran, err = c.Once(t.Context(), "job", at, b.job("c", always(0)))
			require.NoError(t, err)
			require.False(t, ran)
			require.Equal(t, before.Version, row(t, m).Version)
			time.Sleep(time.Second - ttl/50)
		}
		require.Equal(t, 200, a.line.statements())
		require.Equal(t, 100, c.line.statements())
	})
}

func TestAFrozenProcessBeginsNoRun(t *testing.T) {
	const reads = 5 // of the wall clock, until the grant has been found to be in time
	for frozen := range 2 * reads {
		synctest.Test(t, func(t *testing.T) {
			m, b := storetest.NewMemory(), &book{}
			a := newGuardian(t, m, "a")
			var n atomic.Int64
			a.ShiftWall(func() time.Duration {
				if n.Add(1) <= int64(frozen) {
					return 0
				}
				if n.Load() == int64(frozen)+1 { // for an hour, in which another has taken over
					if _, ok := m.Get("job"); ok {
						theft(m)
					}
				}
				return time.Hour
			})
			ran, err := a.Once(t.Context(), "job", epoch, b.job("a", always(0)))
			require.Equal(t, ran, len(b.all()) > 0)
			switch {
			case frozen < 2: // before the claim
				require.True(t, ran)
			case frozen < reads:
				require.Error(t, err)
				require.False(t, ran)
			}
		})
	}
}

func TestArgumentsOfAGuardThatCannotWork(t *testing.T) {
	m := storetest.NewMemory()
	_, err := joblease.NewGuard(nil, quiet("a"))
	require.ErrorAs(t, err, new(*joblease.ConfigError))
	_, err = joblease.NewGuard(m, joblease.Config{TTL: time.Millisecond})
	require.ErrorAs(t, err, new(*joblease.ConfigError))
	g, err := joblease.NewGuard(m, quiet("a"))
	require.NoError(t, err)
	fn := func(context.Context) error { panic("must not run") }
	for name, call := range map[string]func() (bool, error){
		"no name":       func() (bool, error) { return g.Once(t.Context(), "", epoch, fn) },
		"no tick":       func() (bool, error) { return g.Once(t.Context(), "job", time.Time{}, fn) },
		"an early tick": func() (bool, error) { return g.Once(t.Context(), "job", time.Unix(-1, 0), fn) },
		"no work":       func() (bool, error) { return g.Once(t.Context(), "job", epoch, nil) },
		"no slot":       func() (bool, error) { return g.Slot(t.Context(), "job", 0, fn) },
		"negative slot": func() (bool, error) { return g.Slot(t.Context(), "job", -time.Second, fn) },
		"finer slot":    func() (bool, error) { return g.Slot(t.Context(), "job", time.Second+1, fn) },
	} {
		ran, err := call()
		require.ErrorAs(t, err, new(*joblease.ConfigError), name)
		require.False(t, ran)
	}
	rows, err := m.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, rows)
}
