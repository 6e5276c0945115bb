package joblease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// supervise runs sch under a supervisor until the returned function is called,
// which returns what Run returned.
func supervise(t *testing.T, s joblease.Store, sch joblease.Scheduler) (sup *joblease.Supervisor, stop func() error) {
	t.Helper()
	sup, err := joblease.NewSupervisor(s, "job", sch, quiet("a"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = sup.Run(ctx)
	}()
	stop = func() error { cancel(); <-done; return err }
	t.Cleanup(func() { _ = stop() })
	return sup, stop
}

func TestEveryTicksLikeATickerForAsLongAsTheTermLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		var at []time.Duration
		began := time.Now()
		_, stop := supervise(t, m, joblease.Every(time.Minute, func(ctx context.Context) error {
			g, ok := joblease.GrantFrom(ctx)
			require.True(t, ok)
			require.Equal(t, int64(1), g.Token)
			at = append(at, time.Since(began))
			if len(at) == 2 {
				time.Sleep(150 * time.Second) // covers two ticks, of which one waits
			}
			return nil
		}))
		time.Sleep(6*time.Minute + time.Second)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{time.Minute, 2 * time.Minute, 270 * time.Second, 5 * time.Minute, 6 * time.Minute}, at)
		time.Sleep(time.Hour)
		require.Len(t, at, 5)
	})
}

func TestEveryWaitsForConfirmationAfterASuspend(t *testing.T) {
	for _, stands := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			var ran, ahead atomic.Int64
			sup, err := joblease.NewSupervisor(m, "job", joblease.Every(time.Hour, func(context.Context) error { ran.Add(1); return nil }),
				joblease.Config{RenewEvery: 3 * time.Second, Logger: quiet("").Logger})
			require.NoError(t, err)
			sup.Lease().ShiftWall(func() time.Duration { return time.Duration(ahead.Load()) })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- sup.Run(ctx) }()
			synctest.Wait()
			time.Sleep(time.Hour - time.Millisecond)
			ahead.Store(int64(time.Hour))
			if !stands {
				theft(m)
			}
			time.Sleep(time.Second)
			if stands {
				require.Equal(t, int64(1), ran.Load(), "the tick is late, not lost")
			} else {
				require.Zero(t, ran.Load())
			}
			cancel()
			require.NoError(t, <-done)
		})
	}
}

func TestAnErrorOfEveryEndsTheTermAndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		failing := true
		sup, stop := supervise(t, m, joblease.Every(time.Minute, func(context.Context) error {
			if failing {
				failing = false
				return errCut
			}
			return nil
		}))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, row(t, m).Held())
		time.Sleep(time.Hour)
		require.Equal(t, int64(2), sup.Status().Terms)
		require.NoError(t, stop())
	})
}

// foreign is a scheduler such as robfig/cron or gocron: started, stopped, started
// again, with one job that takes a while.
type foreign struct {
	job     func()
	refuses error // what Shutdown returns, without waiting

	mu      sync.Mutex
	running bool
	stop    chan struct{}
	jobs    sync.WaitGroup
}

func (f *foreign) Start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running {
		panic("started twice")
	}
	f.running, f.stop = true, make(chan struct{})
	stop := f.stop
	f.jobs.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			select {
			case <-stop: // the one that counts if both are ready
				return
			default:
				f.job()
			}
		}
	})
}

func (f *foreign) Stop() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = false
	close(f.stop)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { f.jobs.Wait(); cancel() }()
	return ctx
}

func (f *foreign) Shutdown() error {
	stopped := f.Stop()
	if f.refuses != nil {
		return f.refuses
	}
	<-stopped.Done()
	return nil
}

func TestAForeignSchedulerIsStartedAndStoppedWithEachTerm(t *testing.T) {
	for name, adapt := range map[string]func(*foreign) joblease.Scheduler{
		"cron": func(f *foreign) joblease.Scheduler { return joblease.Cron(f) },
		"per term": func(f *foreign) joblease.Scheduler {
			return joblease.PerTerm(func(context.Context) (*foreign, error) { return &foreign{job: f.job}, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory()
				var ticks, inside atomic.Int64
				f := &foreign{job: func() { inside.Add(1); time.Sleep(time.Second / 2); inside.Add(-1); ticks.Add(1) }}
				_, stop := supervise(t, m, adapt(f))
				for term := 1; term <= 3; term++ {
					time.Sleep(20*time.Second + 250*time.Millisecond)
					require.Positive(t, ticks.Load())
					m.Delete("job")
					for r, ok := m.Get("job"); !ok || r.Token == 0; r, ok = m.Get("job") {
						time.Sleep(time.Millisecond)
					}
					require.Zero(t, inside.Load(), "the job in flight has ended before the next term")
				}
				require.NoError(t, stop())
				was := ticks.Load()
				require.Zero(t, inside.Load())
				time.Sleep(time.Minute)
				require.Equal(t, was, ticks.Load())
			})
		})
	}
}

func TestASchedulerThatCannotStopItsJobsLeavesTheLeaseToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		f := &foreign{job: func() { time.Sleep(time.Hour) }, refuses: errors.New("timed out waiting for jobs")}
		_, stop := supervise(t, m, joblease.PerTerm(func(context.Context) (*foreign, error) { return f, nil }))
		time.Sleep(10 * time.Second)
		err := stop()
		var overrun *joblease.OverrunError
		require.ErrorAs(t, err, &overrun)
		require.ErrorIs(t, err, f.refuses)
		require.True(t, row(t, m).Held(), "not released")
		time.Sleep(time.Hour)
	})
}

func TestASchedulerThatCannotStopItsJobsAfterALossLeavesTheOldClaimAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		w := newLine(m)
		var terms []*foreign
		_, stop := supervise(t, w, joblease.PerTerm(func(context.Context) (*foreign, error) {
			f := &foreign{job: func() { time.Sleep(time.Hour) }, refuses: errors.New("timed out waiting for jobs")}
			terms = append(terms, f)
			return f, nil
		}))
		time.Sleep(2 * time.Second)
		w.set(answerLost)
		time.Sleep(trust + time.Second) // lost, though the row still stands
		w.set(none)
		require.True(t, row(t, m).Held())
		claim := row(t, m).Claim
		for row(t, m).Remaining > 0 {
			require.Equal(t, claim, row(t, m).Claim, "not released while jobs of the term may run")
			time.Sleep(time.Second / 10)
		}
		time.Sleep(ttl)
		_ = stop()
		require.Len(t, terms, 2)
		time.Sleep(2 * time.Hour)
	})
}

func TestASchedulerThatCannotBeMadeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		tries := 0
		sup, stop := supervise(t, m, joblease.PerTerm(func(context.Context) (*foreign, error) {
			if tries++; tries < 3 {
				return nil, errCut
			}
			return &foreign{job: func() {}}, nil
		}))
		time.Sleep(time.Minute)
		require.NoError(t, sup.IsLeader(t.Context()))
		require.NoError(t, stop())
		require.Equal(t, 3, tries)
	})
}

func TestAGatedJobOfAnotherSchedulerIsWaitedForBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		sup, stop := supervise(t, m, joblease.Idle())
		var ended time.Time
		job := sup.Gate(func(ctx context.Context) {
			g, _ := joblease.GrantFrom(ctx)
			require.Equal(t, int64(1), g.Token)
			time.Sleep(20 * time.Second) // longer than a TTL
			require.True(t, row(t, m).Held())
			require.True(t, joblease.Held(ctx))
			require.NoError(t, ctx.Err(), "it may finish")
			ended = time.Now()
		})
		job() // before the term: nothing
		synctest.Wait()
		require.True(t, ended.IsZero())
		returned := make(chan struct{})
		go func() { defer close(returned); job() }()
		synctest.Wait()
		require.NoError(t, stop())
		<-returned
		require.Equal(t, ended, time.Now())
		require.False(t, row(t, m).Held())
		job() // after it: nothing
		require.Equal(t, ended, time.Now())
	})
}

func TestTheContextOfAJobEndsWithALossOrAnOverrunAndNotWithAShutdown(t *testing.T) {
	for _, loss := range []bool{true, false} {
		for _, where := range []string{"gate", "every"} {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory()
				type end struct {
					at    time.Time
					cause error
				}
				ends := make(chan end, 10)
				job := func(ctx context.Context) {
					<-ctx.Done()
					ends <- end{time.Now(), context.Cause(ctx)}
				}
				sch := joblease.Idle()
				if where == "every" {
					sch = joblease.Every(time.Millisecond, func(ctx context.Context) error { job(ctx); return nil })
				}
				sup, stop := supervise(t, m, sch)
				synctest.Wait()
				if where == "gate" {
					go sup.Gate(job)()
				}
				time.Sleep(time.Second)
				began := time.Now()
				if loss {
					m.Delete("job")
					time.Sleep(ttl / 3)
					told := <-ends
					require.ErrorIs(t, told.cause, joblease.ErrLost)
					require.LessOrEqual(t, told.at.Sub(began), ttl/3)
					_ = stop()
					return
				}
				var overrun *joblease.OverrunError
				require.ErrorAs(t, stop(), &overrun)
				told := <-ends
				require.Equal(t, 30*time.Second, told.at.Sub(began))
				require.ErrorIs(t, told.cause, joblease.ErrLost)
				require.ErrorAs(t, told.cause, &overrun)
			})
		}
	}
}

func TestAGatedJobThatPanicsDoesNotKeepTheTermFromEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup, stop := supervise(t, storetest.NewMemory(), joblease.Idle())
		synctest.Wait()
		require.Panics(t, sup.Gate(func(context.Context) { panic("boom") }))
		require.NoError(t, stop())
	})
}

func TestAGateLetsNothingInAfterALossThatNobodyHasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		synctest.Wait()
		a.line.set(deaf) // the renewing loop hangs in a call that does not even end with its context
		time.Sleep(trust)
		a.Gate(func(context.Context) { t.Error("let in") })()
		require.False(t, a.Status().Held)
		a.line.set(none)
	})
}
