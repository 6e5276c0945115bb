package joblease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

var minutely = joblease.Interval(time.Minute, 0)

func TestEachTickOfAJobRunsOnceOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		time.Sleep(30 * time.Second)
		replicas := fleet(t, m, b, time.Millisecond, minutely, "abc")
		time.Sleep(time.Hour)
		requireEach(t, time.Minute, time.Minute, time.Hour, b.ticks())
		for _, r := range b.all() {
			require.Equal(t, r.tick, r.began)
		}
		statements := 0
		for _, g := range replicas {
			require.NoError(t, g.shutdown())
			statements += g.line.statements()
			require.Empty(t, g.events.of(joblease.EventTickMissed))
		}
		require.Equal(t, 3+60*(2+1+1), statements, "one look each, and no more for the ticks than they cost")
	})
}

func TestAnOffsetAndTheZoneOfAReplicaDoNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		fleet(t, m, b, 0, joblease.Interval(time.Hour, 5*time.Minute), "ab")
		time.Sleep(24*time.Hour + time.Second)
		requireEach(t, time.Hour, 5*time.Minute, 24*time.Hour, b.ticks())
	})
}

func TestATickWhoseStoreFailsIsNotRunAndTheLoopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b, log := storetest.NewMemory(), &book{}, &lines{}
		time.Sleep(time.Second / 2)
		g := newGuardian(t, m, "a", func(c *joblease.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		g.launch(t, joblease.Job{Name: "job", Schedule: joblease.Interval(time.Second, 0), Run: b.job("a", always(0))})
		time.Sleep(10 * time.Second) // 10.5
		require.Empty(t, log.with(""), "a tick a second does not fill the log")
		g.line.set(refused)
		time.Sleep(2 * time.Second)
		g.line.set(none) // 12.5
		time.Sleep(8 * time.Second)
		require.NotContains(t, b.ticks(), 11*time.Second)
		ticks := b.ticks()
		requireEach(t, time.Second, 13*time.Second, 20*time.Second, ticks[len(ticks)-8:])
		require.Len(t, log.with("level=WARN"), 1)
		for _, r := range b.all() {
			require.Equal(t, r.tick, r.began, "none is late for the retries of the one before")
		}
	})
}

func TestATickThatWasWaitedForIsRunALittleLateWhenTheStoreIsBack(t *testing.T) {
	for _, f := range []fault{refused, blackholed, answerLost} {
		for _, outage := range []time.Duration{10 * time.Second, 5 * time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				m, b := storetest.NewMemory(), &book{}
				replicas := fleet(t, m, b, 0, joblease.Interval(time.Hour, 0), "ab")
				time.Sleep(time.Hour - time.Second)
				for _, g := range replicas {
					g.line.set(f)
				}
				time.Sleep(time.Second + outage)
				for _, g := range replicas {
					g.line.set(none)
				}
				time.Sleep(2 * time.Hour)
				if outage < 2*ttl {
					requireEach(t, time.Hour, time.Hour, 3*time.Hour, b.ticks())
					require.Less(t, b.all()[0].began, time.Hour+2*ttl)
				} else {
					requireEach(t, time.Hour, 2*time.Hour, 3*time.Hour, b.ticks())
					require.Len(t, replicas[0].events.of(joblease.EventTickMissed), 1)
				}
			})
		}
	}
}

func missed(n int) func(*joblease.Job) { return func(j *joblease.Job) { j.Missed = n } }

func TestARunLongerThanTheIntervalNeverOverlapsAndCoversTicksByPolicy(t *testing.T) {
	for _, c := range []struct {
		missed int
		long   time.Duration
		want   []time.Duration // minutes
	}{
		{0, 130 * time.Second, []time.Duration{1, 4, 7, 10, 13, 16, 19}},
		{1, 150 * time.Second, []time.Duration{1, 3, 6, 8, 11, 13, 16, 18}},
		{1, 90 * time.Second, []time.Duration{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19}},
		{100, 90 * time.Second, []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
	} {
		for _, names := range []string{"a", "abc"} {
			again := len(names) > 1 && c.long > 2*time.Minute // also when they watch the run
			synctest.Test(t, func(t *testing.T) {
				m, b := storetest.NewMemory(), &book{}
				fleet(t, m, b, c.long, minutely, names, missed(c.missed), func(j *joblease.Job) { j.Again = again })
				time.Sleep(20*time.Minute - time.Second)
				require.Empty(t, b.overlapped())
				var want []time.Duration
				for _, n := range c.want {
					want = append(want, n*time.Minute)
				}
				require.Equal(t, want, b.ticks(), "%d missed, %v long, by %s", c.missed, c.long, names)
			})
		}
	}
}

func TestTheTicksOfATimeWithoutReplicasAreRunByPolicy(t *testing.T) {
	for _, c := range []struct {
		missed int
		want   []time.Duration // minutes
	}{
		{0, []time.Duration{1, 2, 3, 9, 10}},
		{1, []time.Duration{1, 2, 3, 8, 9, 10}},
		{3, []time.Duration{1, 2, 3, 6, 7, 8, 9, 10}},
		{joblease.MaxMissed, []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
	} {
		for _, names := range []string{"a", "abc"} {
			synctest.Test(t, func(t *testing.T) {
				m, b := storetest.NewMemory(), &book{}
				time.Sleep(30 * time.Second)
				before := fleet(t, m, b, time.Second, minutely, names, missed(c.missed))
				time.Sleep(3 * time.Minute)
				for _, g := range before {
					require.NoError(t, g.shutdown())
				}
				time.Sleep(5 * time.Minute)
				fleet(t, m, b, time.Second, minutely, names, missed(c.missed))
				time.Sleep(2*time.Minute + time.Second)
				var want []time.Duration
				for _, n := range c.want {
					want = append(want, n*time.Minute)
				}
				require.Equal(t, want, b.ticks(), "%d missed, by %s", c.missed, names)
				require.Empty(t, b.overlapped())
			})
		}
	}
}

func TestANewJobHasMissedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		time.Sleep(90 * time.Second)
		fleet(t, m, b, 0, minutely, "ab", missed(joblease.MaxMissed))
		time.Sleep(time.Minute)
		require.Equal(t, []time.Duration{2 * time.Minute}, b.ticks())
	})
}

// A new job has missed nothing, but once a replica has run it, the ticks after that
// are the others' too, also of those that came in between.
func TestTheTicksAfterTheFirstOneAreMissedThoughTheJobWasNewWhenTheReplicaCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		a := fleet(t, m, b, 30*time.Second, minutely, "a", missed(100))[0]
		synctest.Wait()
		a.line.set(refused)
		time.Sleep(2*time.Minute + 10*time.Second)
		fleet(t, m, b, 0, minutely, "b", missed(100))
		synctest.Wait()
		a.line.set(none)
		time.Sleep(10 * time.Second)
		require.Equal(t, []time.Duration{time.Minute}, b.ticks())
		a.kill()
		time.Sleep(2*time.Minute - 10*time.Second)
		requireEach(t, time.Minute, time.Minute, 4*time.Minute, b.ticks())
	})
}

func TestAnInterruptedRunIsDroppedOrRunAgainByPolicy(t *testing.T) {
	for name, end := range map[string]func(*guardian){ // within the run
		"killed":    (*guardian).kill,
		"shut down": func(g *guardian) { g.stop() }, // and not done within StopTimeout
		"robbed":    func(g *guardian) { theft(g.line.Memory) },
	} {
		for _, more := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, b := storetest.NewMemory(), &book{}
					replicas := fleet(t, m, b, 2*time.Minute, joblease.Interval(time.Hour, 0), "abc", func(j *joblease.Job) { j.Again = more })
					time.Sleep(time.Hour + 30*time.Second)
					first := b.all()[0]
					for _, g := range replicas {
						if g.name == first.replica {
							end(g)
						}
					}
					time.Sleep(3*time.Hour + 3*time.Minute)
					runs := b.all()
					require.True(t, runs[0].cut)
					want := every(time.Hour, time.Hour, 4*time.Hour)
					if more {
						want = append([]time.Duration{time.Hour}, want...)
						late := runs[1].began - time.Hour - 30*time.Second
						if name == "shut down" {
							late -= 30 * time.Second
						}
						require.Positive(t, late)
						require.LessOrEqual(t, late, ttl+2*ttl/5, "the end of the lease, by the takeover rules")
					}
					require.Equal(t, want, b.ticks())
					require.Empty(t, b.overlapped())
					require.True(t, row(t, m).TickDone)
				})
			})
		}
	}
}

func TestARunThatFailsOrPanicsIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, events := storetest.NewMemory(), &journal{}
		g := newGuardian(t, m, "a", func(c *joblease.Config) { c.Observe = events.observe })
		calls := 0
		g.launch(t, joblease.Job{Name: "job", Schedule: minutely, Again: true, Run: func(context.Context) error {
			calls++
			return errCut
		}})
		time.Sleep(10*time.Minute + time.Second)
		require.NoError(t, g.shutdown())
		require.Equal(t, 10, calls)
		failed := events.of(joblease.EventWorkFailed)
		require.Len(t, failed, 10)
		require.ErrorIs(t, failed[0].Err, errCut)
		require.Equal(t, epoch.Add(time.Minute), failed[0].Tick)
	})
}

func TestAReplicaWhoseClockIsMinutesOffRunsTheSameInstants(t *testing.T) {
	for _, off := range []time.Duration{-5 * time.Minute, 5 * time.Minute, time.Hour} {
		for _, lone := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				m, b := storetest.NewMemory(), &book{}
				m.Step(-off)
				if !lone {
					m.Step(off)
					fleet(t, m, b, time.Millisecond, minutely, "ab")
				}
				g := newGuardian(t, m, "off")
				g.ShiftWall(func() time.Duration { return off })
				g.launch(t, joblease.Job{Name: "job", Schedule: minutely, Run: b.job("off", always(0))})
				time.Sleep(30 * time.Minute)
				require.InDelta(t, 30, len(b.ticks()), 1)
				for i, r := range b.all() {
					require.Equal(t, epoch.Add(r.tick), m.Now().Add(r.began-time.Since(epoch)), "when the database says so")
					require.Equal(t, b.ticks()[0]+time.Duration(i)*time.Minute, r.tick)
				}
			})
		}
	}
}

func TestTheDatabasesClockMayBeStepped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		fleet(t, m, b, time.Millisecond, minutely, "abc")
		time.Sleep(10*time.Minute + 30*time.Second)
		m.Step(time.Hour) // 1:10:30
		time.Sleep(10 * time.Minute)
		m.Step(-time.Hour) // 0:20:30
		time.Sleep(2*time.Hour + time.Minute)
		ticks := b.ticks()
		for i := 1; i < len(ticks); i++ {
			require.Greater(t, ticks[i], ticks[i-1], "never twice")
		}
		requireEach(t, time.Minute, 81*time.Minute, 141*time.Minute, ticks[len(ticks)-61:])
	})
}

func TestAClockThatWasFarAheadForAMomentNeedsNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		fleet(t, m, b, time.Millisecond, minutely, "abc")
		time.Sleep(30 * time.Second)
		m.Step(10000 * time.Hour)
		time.Sleep(15 * time.Minute)
		m.Step(-10000 * time.Hour)
		time.Sleep(time.Hour)
		before := len(b.ticks())
		require.Greater(t, b.ticks()[before-1], 10000*time.Hour, "the row refuses what is older than its last tick")
		m.Delete("job") // by the operator
		time.Sleep(time.Hour)
		requireEach(t, time.Minute, 76*time.Minute, 135*time.Minute, b.ticks()[before:])
	})
}

func TestALoneReplicaThatLostItsLeaseInARunRunsTheTickAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := fleet(t, m, b, time.Minute, joblease.Interval(time.Hour, 0), "a", func(j *joblease.Job) { j.Again = true })[0]
		time.Sleep(time.Hour + time.Second)
		g.line.set(refused)
		time.Sleep(2 * ttl)
		require.True(t, b.all()[0].cut)
		g.line.set(none)
		time.Sleep(5 * time.Minute)
		require.Equal(t, []time.Duration{time.Hour, time.Hour}, b.ticks())
		require.False(t, b.all()[1].cut)
		require.True(t, row(t, m).TickDone)
	})
}

func runAgain(j *joblease.Job) { j.Again = true }

// parted returns the replica of the last run, and the other one.
func parted(b *book, replicas []*guardian) (runner, other *guardian) {
	runs := b.all()
	if runs[len(runs)-1].replica == replicas[0].name {
		return replicas[0], replicas[1]
	}
	return replicas[1], replicas[0]
}

func TestAReplicaThatComesLaterRunsAnInterruptedTickAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		hourly := joblease.Interval(time.Hour, 0)
		a := fleet(t, m, b, time.Minute, hourly, "a", runAgain)[0]
		time.Sleep(time.Hour + time.Second)
		a.kill()
		time.Sleep(5 * time.Minute)
		fleet(t, m, b, time.Minute, hourly, "b", runAgain)
		time.Sleep(time.Second)
		require.Equal(t, []time.Duration{time.Hour, time.Hour}, b.ticks())
		time.Sleep(time.Hour)
	})
}

func TestAReplicaThatHeardNothingOfARunStillRunsItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		replicas := fleet(t, m, b, 2*time.Minute, minutely, "ab", runAgain)
		synctest.Wait()
		replicas[1].line.set(refused)
		time.Sleep(100 * time.Second)
		replicas[1].line.set(none)
		time.Sleep(21 * time.Second) // 2:01, and b has seen that the lease is held
		replicas[0].kill()
		time.Sleep(ttl + ttl/3)
		require.Equal(t, []time.Duration{time.Minute, time.Minute}, b.ticks())
	})
}

func TestAReleaseWakesAReplicaThatWaitsToRunATickLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		replicas := fleet(t, m, b, 90*time.Second, minutely, "ab", missed(1))
		time.Sleep(2*time.Minute + time.Second)
		runner, other := parted(b, replicas)
		runner.stop()
		time.Sleep(time.Minute)
		require.Len(t, b.all(), 2)
		require.Equal(t, run{tick: 2 * time.Minute, replica: other.name, began: 150 * time.Second}, b.all()[1])
	})
}

func TestAReplicaThatLeavesGivesBackAClaimWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := fleet(t, m, b, 0, minutely, "a")[0]
		time.Sleep(30 * time.Second)
		g.line.set(answerLost)
		time.Sleep(31 * time.Second)
		require.True(t, row(t, m).Held())
		g.line.set(none)
		require.NoError(t, g.shutdown())
		require.False(t, row(t, m).Held())
		require.False(t, row(t, m).TickDone)
		require.Empty(t, b.ticks())
	})
}

func TestARunThatOutlivedItsLeaseAndSucceededIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		var ticks []time.Time
		g.launch(t, joblease.Job{Name: "job", Schedule: joblease.Interval(time.Hour, 0), Again: true, Run: func(ctx context.Context) error {
			grant, _ := joblease.GrantFrom(ctx)
			ticks = append(ticks, grant.Tick)
			time.Sleep(50 * time.Second) // whatever ctx says
			return nil
		}})
		time.Sleep(time.Hour + ttl)
		g.line.set(refused)
		time.Sleep(2 * ttl)
		g.line.set(none)
		time.Sleep(time.Hour)
		require.NoError(t, g.shutdown())
		require.NotEmpty(t, g.events.of(joblease.EventLost))
		require.Equal(t, []time.Time{epoch.Add(time.Hour), epoch.Add(2 * time.Hour)}, ticks)
	})
}

func TestAnInterruptedTickThatLiesAheadIsNotAskedForInABusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		replicas := fleet(t, m, b, time.Minute, joblease.Interval(time.Hour, 0), "ab", func(j *joblease.Job) { j.Again = true })
		time.Sleep(time.Hour + 30*time.Second)
		for _, g := range replicas {
			if g.name == b.all()[0].replica {
				g.kill()
			}
		}
		m.Step(-30 * time.Minute)
		time.Sleep(20 * time.Minute)
		for _, g := range replicas {
			require.Less(t, g.line.statements(), 50)
		}
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{time.Hour, time.Hour}, b.ticks(), "run again when it has come")
	})
}

func TestASuspendDoesNotDelayTheTicksAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		var ahead atomic.Int64
		g := newGuardian(t, m, "a")
		g.ShiftWall(func() time.Duration { return time.Duration(ahead.Load()) })
		g.launch(t, joblease.Job{Name: "job", Schedule: joblease.Interval(time.Hour, 0), Run: b.job("a", always(0))})
		time.Sleep(5*time.Minute + 30*time.Second)
		const suspend = 52*time.Minute + 30*time.Second
		ahead.Store(int64(suspend)) // and the monotonic clock stood still
		m.Step(suspend)
		time.Sleep(3 * time.Minute)
		require.Equal(t, []time.Duration{time.Hour}, b.ticks())
		require.Equal(t, time.Hour-suspend, b.all()[0].began, "on time")
	})
}

func TestInstantsFinerThanADatabaseKeepsAreTicksToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		fine := scheduleFunc(func(t time.Time) time.Time { // 300 ns past each second
			return t.Add(-300).Truncate(time.Second).Add(time.Second + 300)
		})
		fleet(t, m, b, 0, fine, "abc")
		time.Sleep(10*time.Second + time.Millisecond)
		requireEach(t, time.Second, time.Microsecond, 10*time.Second+time.Microsecond, b.ticks())
	})
}

func TestASlowAnswerDoesNotMakeTheNextTickLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := fleet(t, m, b, 0, minutely, "a")[0]
		time.Sleep(30 * time.Second)
		g.line.setDelay(2 * time.Second)
		time.Sleep(time.Minute)
		g.line.setDelay(0)
		time.Sleep(time.Minute)
		requireEach(t, time.Minute, time.Minute, 2*time.Minute, b.ticks())
		require.Equal(t, time.Minute+2*time.Second, b.all()[0].began)
		require.Equal(t, 2*time.Minute, b.all()[1].began)
	})
}

func TestADriftOfTheClocksIsNoticedWithinMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		fleet(t, m, b, 0, joblease.Interval(time.Hour, 0), "a")
		time.Sleep(30 * time.Minute)
		m.Step(20 * time.Second)
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{time.Hour}, b.ticks())
		require.Equal(t, time.Hour-20*time.Second, b.all()[0].began)
	})
}

func TestAShutdownDrainsTheRunAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		var stopped time.Time
		var told error
		g.launch(t, joblease.Job{Name: "job", Schedule: minutely, Run: func(ctx context.Context) error {
			time.Sleep(70 * time.Second)
			stopped, told = time.Now(), ctx.Err()
			return errCut
		}})
		time.Sleep(2*time.Minute - time.Second)
		g.stop()
		time.Sleep(time.Second)
		require.True(t, row(t, m).Held())
		<-g.done
		require.NoError(t, g.err)
		require.Equal(t, stopped, time.Now())
		require.NoError(t, told, "it may finish")
		require.False(t, row(t, m).Held())
		require.True(t, row(t, m).TickDone, "it was not cut short")
		require.Len(t, g.events.of(joblease.EventWorkFailed), 1)
	})
}

func TestARunThatDoesNotStopAtShutdownOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := newGuardian(t, m, "a")
		g.launch(t, joblease.Job{Name: "job", Schedule: minutely, Run: func(context.Context) error { time.Sleep(time.Hour); return nil }})
		time.Sleep(90 * time.Second)
		began := time.Now()
		err := g.shutdown()
		require.ErrorAs(t, err, new(*joblease.OverrunError))
		require.ErrorContains(t, err, `"job"`)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.False(t, row(t, m).TickDone)
		time.Sleep(time.Hour)
	})
}

func TestAPanicOfOneJobStopsTheOthersInGoodOrderAndGoesOn(t *testing.T) {
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		var p *joblease.PanicError
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { p, _ = recover().(*joblease.PanicError) }()
			_ = g.Run(t.Context(),
				joblease.Job{Name: "job", Schedule: minutely, Run: func(context.Context) error { time.Sleep(time.Second); panic(boom) }},
				joblease.Job{Name: "other", Schedule: minutely, Run: b.job("a", always(10*time.Second))})
		}()
		<-done
		require.Equal(t, boom, p.Value)
		require.Equal(t, 70*time.Second, time.Since(epoch))
		require.False(t, b.all()[0].cut)
		rows, err := m.List(t.Context())
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for _, r := range rows {
			require.False(t, r.Held(), r.Name)
		}
		failed := g.events.of(joblease.EventWorkFailed)
		require.Len(t, failed, 1)
		require.ErrorIs(t, failed[0].Err, boom)
	})
}

func TestJobsThatCannotWorkStartNothing(t *testing.T) {
	m := storetest.NewMemory()
	g, err := joblease.NewGuard(m, quiet("a"))
	require.NoError(t, err)
	fn := func(context.Context) error { panic("must not run") }
	fine := joblease.Job{Name: "fine", Schedule: minutely, Run: fn}
	for name, jobs := range map[string][]joblease.Job{
		"none":              {},
		"no name":           {fine, {Schedule: minutely, Run: fn}},
		"no work":           {fine, {Name: "job", Schedule: minutely}},
		"no schedule":       {fine, {Name: "job", Run: fn}},
		"bad interval":      {fine, {Name: "job", Schedule: joblease.Interval(0, 0), Run: fn}},
		"bad offset":        {fine, {Name: "job", Schedule: joblease.Interval(time.Hour, 1), Run: fn}},
		"bad zone":          {fine, {Name: "job", Schedule: joblease.In(nil, minutely), Run: fn}},
		"bad in a zone":     {fine, {Name: "job", Schedule: joblease.In(time.UTC, joblease.Interval(0, 0)), Run: fn}},
		"negative missed":   {fine, {Name: "job", Schedule: minutely, Run: fn, Missed: -1}},
		"unbounded missed":  {fine, {Name: "job", Schedule: minutely, Run: fn, Missed: joblease.MaxMissed + 1}},
		"the same name":     {fine, fine},
		"no shared instant": {fine, {Name: "job", Schedule: delay(90 * time.Second), Run: fn}},
	} {
		err := g.Run(t.Context(), jobs...)
		require.ErrorAs(t, err, new(*joblease.ConfigError), name)
	}
	rows, err := m.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, rows)
}

func TestAGuardRefusesAJobThatItRunsAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		job := joblease.Job{Name: "job", Schedule: minutely, Run: b.job("a", always(0))}
		g.launch(t, job)
		synctest.Wait()
		require.ErrorAs(t, g.Run(t.Context(), job), new(*joblease.ConfigError))
		require.NoError(t, g.shutdown())
		g.launch(t, job)
		time.Sleep(time.Minute + time.Second)
		require.Len(t, b.ticks(), 1)
	})
}

func TestAJobWaitsForADatabaseThatIsDownAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := storetest.NewMemory(), &book{}
		g := newGuardian(t, m, "a")
		g.line.set(blackholed)
		g.launch(t, joblease.Job{Name: "job", Schedule: minutely, Run: b.job("a", always(0))})
		time.Sleep(10 * time.Minute)
		g.line.set(none)
		time.Sleep(5*time.Minute + time.Second)
		requireEach(t, time.Minute, 11*time.Minute, 15*time.Minute, b.ticks())
	})
}
