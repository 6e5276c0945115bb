package joblease_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

func TestAStandbyDoesNotStartItsScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		synctest.Wait()
		b := start(t, m, "b")
		time.Sleep(time.Hour)
		require.True(t, a.probe.runs())
		require.False(t, b.probe.runs())
		require.Len(t, a.probe.history(), 1)
		require.Equal(t, joblease.Leading, a.Status().State)
		st := b.Status()
		require.Equal(t, joblease.Standby, st.State)
		require.Equal(t, "a", st.Holder)
		require.NoError(t, a.IsLeader(t.Context()))
		require.ErrorIs(t, b.IsLeader(t.Context()), joblease.ErrHeld)
	})
}

func TestAStandbyTakesOverOnlyAfterExpiryAndThenAtOnce(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			a := start(t, m, "a")
			synctest.Wait()
			b := start(t, m, "b")
			time.Sleep(3*ttl + rand.N(ttl))
			a.kill()
			expires := row(t, m).ExpiresAt
			time.Sleep(2 * ttl)
			require.True(t, b.probe.runs())
			late := b.probe.history()[0].started.Sub(expires)
			require.GreaterOrEqual(t, late, time.Duration(0))
			require.LessOrEqual(t, late, time.Millisecond)
		})
	}
}

func TestAStandbyThatJustCameTakesOverWithinOneTTLOfItsFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		time.Sleep(time.Minute)
		b := start(t, m, "b")
		synctest.Wait()
		a.kill()
		expires := time.Until(row(t, m).ExpiresAt)
		time.Sleep(expires)
		require.False(t, b.probe.runs())
		time.Sleep(ttl - expires)
		synctest.Wait()
		require.True(t, b.probe.runs())
	})
}

func TestAServiceThatIsStartedAgainAfterACrashDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		synctest.Wait()
		a.kill()
		time.Sleep(ttl)
		b := start(t, m, "b")
		synctest.Wait()
		require.True(t, b.probe.runs())
	})
}

func TestALoneReplicaLeadsAgainAfterEachOfTwentyLosses(t *testing.T) {
	for name, lose := range map[string]func(*replica){
		"the row is deleted":    func(r *replica) { r.line.Memory.Delete("job") },
		"the database is away":  func(r *replica) { r.line.set(refused); time.Sleep(ttl); r.line.set(none) },
		"the database is deaf":  func(r *replica) { r.line.set(deaf); time.Sleep(ttl); r.line.set(none) },
		"answers are lost":      func(r *replica) { r.line.set(answerLost); time.Sleep(2 * ttl); r.line.set(none) },
		"another takes it over": func(r *replica) { theft(r.line.Memory) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, storetest.NewMemory(), "a")
				for range 20 {
					synctest.Wait()
					require.True(t, r.probe.runs())
					terms := len(r.probe.history())
					lose(r)
					time.Sleep(2 * ttl)
					require.Greater(t, len(r.probe.history()), terms)
				}
				require.Len(t, r.events.of(joblease.EventLost), len(r.probe.history())-1)
			})
		})
	}
}

// theft makes the row that of somebody who dies at once.
func theft(m *storetest.Memory) {
	r, _ := m.Get("job")
	r.Claim, r.Holder = joblease.NewClaimID(), "thief"
	r.Token++
	r.Version++
	m.Put(r)
}

func TestAFailedRenewalIsNotALostLease(t *testing.T) {
	for _, f := range []fault{refused, blackholed, answerLost} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			a := start(t, m, "a")
			synctest.Wait()
			b := start(t, m, "b")
			for range 20 {
				time.Sleep(time.Minute + rand.N(ttl))
				a.line.set(f)
				time.Sleep(ttl / 3)
				a.line.set(none)
			}
			time.Sleep(time.Minute)
			require.Len(t, a.probe.history(), 1)
			require.True(t, a.probe.runs())
			require.Empty(t, b.probe.history())
			require.Equal(t, int64(1), row(t, m).Token)
			require.NotEmpty(t, a.events.of(joblease.EventFailing))
			require.NotEmpty(t, a.events.of(joblease.EventRecovered))
			require.Empty(t, a.events.of(joblease.EventLost))
		})
	}
}

func TestTheWorkIsToldBeforeTheLeaseExpiresInTheDatabase(t *testing.T) {
	faults := []fault{refused, blackholed, answerLost, deaf}
	for round := range 100 {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			a := start(t, m, "a")
			synctest.Wait()
			time.Sleep(rand.N(2 * ttl))
			a.line.set(faults[round%len(faults)])
			// With lost answers each renewal still moves the expiry in the
			// database; trust must end all the same.
			for a.probe.runs() {
				require.Positive(t, row(t, m).Remaining)
				time.Sleep(time.Millisecond)
			}
			told := a.probe.history()[0]
			require.ErrorIs(t, told.cause, joblease.ErrLost)
			require.True(t, row(t, m).ExpiresAt.Sub(told.told) >= ttl/10, "the Margin is kept")
			require.False(t, a.Status().Held)
			a.line.set(none)
		})
	}
}

func TestASlowAnswerDoesNotStretchTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(_ *replica, c *joblease.Config) {
			c.RenewEvery, c.CallTimeout, c.Margin = time.Second, 6500*time.Millisecond, time.Second/2
		})
		synctest.Wait()
		a.line.setDelay(6 * time.Second) // of each answer
		time.Sleep(time.Minute)
		require.Len(t, a.probe.history(), 1, "slow is not lost")
		for {
			until, sent := a.Status().TrustedUntil, row(t, m).RenewedAt
			require.False(t, until.After(sent.Add(ttl-time.Second/2)))
			if time.Since(sent) > 3*time.Second { // its answer is still under way
				require.False(t, until.After(sent.Add(ttl-time.Second/2-6*time.Second)), "not counted before it is confirmed")
				return
			}
			time.Sleep(time.Second)
		}
	})
}

func TestALossStopsTheSchedulerAtOnceAndOneEventTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		synctest.Wait()
		theft(m)
		time.Sleep(ttl / 3) // the next renewal
		synctest.Wait()
		require.False(t, a.probe.runs())
		require.ErrorIs(t, a.probe.history()[0].cause, joblease.ErrLost)
		lost := a.events.of(joblease.EventLost)
		require.Len(t, lost, 1)
		var why *joblease.LostError
		require.ErrorAs(t, lost[0].Err, &why)
		require.Equal(t, joblease.LostReplaced, why.Reason)
	})
}

func TestALeaseLostAndWonAgainIsANewTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		synctest.Wait()
		theft(m) // B has it
		r := row(t, m)
		require.NoError(t, m.Release(t.Context(), joblease.Grant{Name: "job", Claim: r.Claim}))
		time.Sleep(ttl)
		terms := a.probe.history()
		require.Len(t, terms, 2)
		require.Equal(t, int64(3), terms[1].token)
		require.False(t, terms[0].stopped.After(terms[1].started))
	})
}

func TestAWallClockThatRanOnSuspendsTrustUntilARenewalHasConfirmedIt(t *testing.T) {
	for _, stands := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			var ahead atomic.Int64
			a := start(t, m, "a")
			synctest.Wait()
			require.NoError(t, a.shutdown())
			a.Lease().ShiftWall(func() time.Duration { return time.Duration(ahead.Load()) })
			a.launch(t)
			synctest.Wait()
			require.True(t, a.Status().Held)
			gated := 0
			job := a.Gate(func(context.Context) { gated++ })

			ahead.Store(int64(ttl / 10))
			require.True(t, a.Status().Held, "within the margin")
			if !stands {
				theft(m)
			}
			before := a.line.statements()
			a.line.setDelay(time.Millisecond) // or the answer could be here at once
			ahead.Store(int64(2 * ttl))
			job()
			require.False(t, a.Status().Held)
			require.ErrorContains(t, a.IsLeader(t.Context()), "confirmed")
			require.Zero(t, gated)
			require.NoError(t, a.probe.history()[1].cause, "it is not told to stop yet")
			time.Sleep(time.Millisecond)
			synctest.Wait()
			job()
			if stands {
				require.Equal(t, before+1, a.line.statements(), "one renewal, made at once")
				require.True(t, a.Status().Held)
				require.Equal(t, 1, gated)
				require.Len(t, a.probe.history(), 2)
			} else {
				require.False(t, a.Status().Held)
				require.Zero(t, gated)
				require.ErrorIs(t, a.probe.history()[1].cause, joblease.ErrLost)
			}
		})
	}
}

func TestAClientWhoseClockIsAnHourOffIsLikeAnyOther(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			a := start(t, m, "a")
			synctest.Wait()
			b := start(t, m, "b")
			synctest.Wait()
			require.NoError(t, b.shutdown())
			b.Lease().ShiftWall(func() time.Duration { return off })
			b.launch(t)
			time.Sleep(time.Hour)
			require.Empty(t, b.probe.history())
			a.kill()
			expires := row(t, m).ExpiresAt
			time.Sleep(ttl)
			require.True(t, b.probe.history()[0].started.Equal(expires))
			time.Sleep(time.Hour)
			require.Len(t, b.probe.history(), 1)
		})
	}
}

func TestAReplicaOfAStoreThatWasNeverSetUpEndsAtOnceAndQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		problem, events := &atomic.Value{}, &journal{}
		problem.Store("no table")
		cfg := quiet("a")
		cfg.Observe = events.observe
		sup, err := joblease.NewSupervisor(setup{storetest.NewMemory(), problem}, "job", joblease.Idle(), cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- sup.Run(ctx) }()
		time.Sleep(time.Minute)
		began := time.Now()
		cancel()
		require.NoError(t, <-done)
		require.Zero(t, time.Since(began))
		require.Empty(t, events.of(joblease.EventReleaseFailed))
	})
}

func TestALostLeaseThatStillStandsIsFreedAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, _ *joblease.Config) {
			r.probe.stopping = func() { time.Sleep(3 * time.Second) }
		})
		synctest.Wait()
		a.line.set(answerLost)
		for len(a.events.of(joblease.EventLost)) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		a.line.set(none)
		require.NoError(t, a.shutdown())
		require.True(t, row(t, m).Claim.IsZero())
	})
}

func TestWorkThatHasEndedUnderItsLeaseIsNotUndoneByALossAfterIt(t *testing.T) {
	for range 20 { // the renewal that hangs begins at a random instant
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			runs := 0
			work := func(ctx context.Context) error {
				if runs++; runs > 1 {
					<-ctx.Done()
					return nil
				}
				time.Sleep(12 * time.Second)
				return nil
			}
			w := newLine(m)
			sup, err := joblease.NewSupervisor(w, "finite", joblease.Func(work), quiet("a"))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- sup.Run(context.Background()) }()
			synctest.Wait()
			w.set(blackholed)
			time.Sleep(20 * time.Second)
			w.set(none)
			require.NoError(t, <-done)
			require.Equal(t, 1, runs)
		})
	}
}

func TestWaitersOfOneLeaseDoNotGiveBackWhatAnotherHolds(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			w := newLine(m)
			a, b := newLease(t, w, "a"), newLease(t, m, "b")
			_, err := b.TryAcquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			gaveUp := make(chan struct{})
			go func() { defer close(gaveUp); _, _ = a.Acquire(ctx) }()
			done := make(chan error, 1)
			go func() {
				done <- a.Do(t.Context(), func(ctx context.Context) error {
					time.Sleep(5 * time.Second)
					require.NoError(t, ctx.Err())
					require.Equal(t, "a", row(t, m).Holder)
					return nil
				})
			}()
			synctest.Wait()
			w.setDelay(time.Second)
			require.NoError(t, b.Release(t.Context()))
			time.AfterFunc(1500*time.Millisecond, cancel)
			require.NoError(t, <-done)
			cancel()
			<-gaveUp
		})
	}
}

func TestWhoHoldsTheLeaseLeads(t *testing.T) {
	sup, err := joblease.NewSupervisor(storetest.NewMemory(), "job", joblease.Func(func(context.Context) error { return nil }), quiet("a"))
	require.NoError(t, err)
	for range 500 { // short terms, looked at all the time
		done := make(chan error, 1)
		go func() { done <- sup.Run(t.Context()) }()
		for running := true; running; {
			select {
			case err := <-done:
				require.NoError(t, err)
				running = false
			default:
				st := sup.Status()
				require.False(t, st.Held && st.State != joblease.Leading)
			}
		}
	}
}

func TestASchedulerThatSaysCancelledByItselfHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		_, stop := supervise(t, storetest.NewMemory(), joblease.Func(func(ctx context.Context) error {
			if runs++; runs == 1 {
				return context.Canceled // of something of its own
			}
			<-ctx.Done()
			return ctx.Err()
		}))
		time.Sleep(time.Minute)
		require.NoError(t, stop(), "what a stop brings about is no failure")
		require.Equal(t, 2, runs)
	})
}

func TestAShutdownGivesTheWorkItsStopTimeoutAlsoAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, _ *joblease.Config) { r.probe.stopping = func() { time.Sleep(50 * time.Second) } })
		synctest.Wait()
		m.Delete("job")
		for len(a.events.of(joblease.EventLost)) == 0 {
			time.Sleep(time.Millisecond)
		}
		before := a.line.statements()
		time.Sleep(29 * time.Second)
		require.Equal(t, before, a.line.statements(), "a lost lease is not renewed")
		require.NoError(t, a.shutdown(), "30 s from the shutdown, not from the loss")
	})
}

func TestARowThatVanishesIsNoticedWithinOnesOwnTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory() // which tells of releases, and a deletion is none
		_, err := m.Acquire(t.Context(), joblease.Claim{Name: "job", ID: joblease.NewClaimID(), Holder: "b", TTL: time.Hour})
		require.NoError(t, err)
		a := start(t, m, "a")
		time.Sleep(time.Second)
		m.Delete("job")
		time.Sleep(ttl)
		require.True(t, a.probe.runs())
	})
}

func TestAnUnconfirmedLeaseDoesNotAskInABusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		a := start(t, storetest.NewMemory(), "a")
		_ = a.shutdown()
		a.Lease().ShiftWall(func() time.Duration { return time.Duration(ahead.Load()) })
		a.launch(t)
		synctest.Wait()
		ahead.Store(int64(time.Hour))
		a.line.set(refused)
		before := a.line.statements()
		for range 5000 {
			require.False(t, a.Status().Held)
			time.Sleep(time.Millisecond)
		}
		require.Less(t, a.line.statements()-before, 30)
	})
}

func TestShutdownReleasesOnlyWhenTheSchedulerHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, c *joblease.Config) {
			c.StopTimeout = time.Hour
			r.probe.stopping = func() { time.Sleep(5 * ttl) } // a job in flight
		})
		synctest.Wait()
		b := start(t, m, "b")
		time.Sleep(3 * ttl)
		a.stop()
		time.Sleep(4 * ttl)
		require.True(t, a.Status().Held, "renewals go on")
		require.Error(t, a.IsLeader(t.Context()), "but nothing new begins")
		require.False(t, b.probe.runs())
		require.NoError(t, a.shutdown())
		synctest.Wait() // no time passes
		require.True(t, b.probe.runs())
		require.Equal(t, a.probe.history()[0].stopped, b.probe.history()[0].started)
	})
}

func TestAJobThatIgnoresItsContextKeepsTheOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, c *joblease.Config) {
			c.StopTimeout = time.Minute
			r.probe.stopping = func() { time.Sleep(3 * ttl) }
		})
		synctest.Wait()
		b := start(t, m, "b")
		require.NoError(t, a.shutdown())
		synctest.Wait()
		require.False(t, b.probe.history()[0].started.Before(a.probe.history()[0].stopped))
	})
}

func TestAWorkThatDoesNotStopInTimeIsReportedAndTheLeaseLeftToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		hang := make(chan struct{})
		a := start(t, m, "a", func(r *replica, _ *joblease.Config) { r.probe.stopping = func() { <-hang } })
		synctest.Wait()
		began := time.Now()
		err := a.shutdown()
		var overrun *joblease.OverrunError
		require.ErrorAs(t, err, &overrun)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Len(t, a.events.of(joblease.EventOverrun), 1)
		require.True(t, row(t, m).Held(), "not released")
		statements := a.line.statements()
		time.Sleep(ttl)
		require.False(t, row(t, m).Held(), "nor renewed")
		require.Equal(t, statements, a.line.statements())
		require.ErrorContains(t, a.Run(t.Context()), "has not stopped", "a second start of the same scheduler")
		close(hang)
		synctest.Wait()
		a.probe.stopping = nil
		a.launch(t)
		time.Sleep(2 * ttl)
		require.True(t, a.probe.runs())
	})
}

func TestAWorkThatDoesNotStopAfterALossIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, _ *joblease.Config) { r.probe.stopping = func() { time.Sleep(time.Hour) } })
		synctest.Wait()
		m.Delete("job")
		time.Sleep(50 * time.Minute)
		require.Len(t, a.events.of(joblease.EventOverrun), 1)
		require.True(t, a.probe.runs())
		require.Len(t, a.probe.history(), 1)
		_, exists := m.Get("job")
		require.False(t, exists, "no campaign while the old term's work runs")
		time.Sleep(20 * time.Minute)
		require.Len(t, a.probe.history(), 2)
		a.probe.stopping = nil
	})
}

func TestCancellingInTheMiddleOfAnyCallEndsWithAReleasedRow(t *testing.T) {
	for _, during := range []string{"acquire", "renewal", "release"} {
		for _, f := range []fault{none, refused, answerLost, blackholed} {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory()
				a := start(t, m, "a", func(r *replica, _ *joblease.Config) { r.line.setDelay(time.Second) })
				at := time.Second / 2 // in the middle of the acquire
				if during != "acquire" {
					at = ttl / 3 // about the renewal
				}
				time.Sleep(at)
				if during != "release" {
					a.line.set(f)
				}
				a.stop()
				time.Sleep(time.Second / 4)
				if during == "release" {
					a.line.set(f)
				}
				time.Sleep(time.Second / 4)
				a.line.set(none)
				<-a.done
				require.NoError(t, a.err)
				if r, ok := m.Get("job"); ok {
					require.True(t, r.Claim.IsZero(), "%s %d", during, f)
				}
				require.False(t, a.probe.runs())
			})
		}
	}
}

func TestHoweverTheSchedulerEndsTheLeaseIsFreeForAnother(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		run  func(context.Context) error
		runs bool // Run goes on
		err  error
	}{
		"fails at once": {func(context.Context) error { return boom }, true, nil},
		"fails later":   {func(context.Context) error { time.Sleep(3 * ttl); return boom }, true, nil},
		"is finished":   {func(context.Context) error { time.Sleep(3 * ttl); return nil }, false, nil},
		"panics":        {func(context.Context) error { time.Sleep(3 * ttl); panic(boom) }, false, boom},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory()
				events := &journal{}
				cfg := quiet("a")
				cfg.Observe = events.observe
				var ended time.Time
				sup, err := joblease.NewSupervisor(m, "job", joblease.Func(func(ctx context.Context) error {
					defer func() { ended = time.Now() }()
					return c.run(ctx)
				}), cfg)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					defer func() {
						if p := recover(); p != nil {
							done <- p.(error)
						}
					}()
					done <- sup.Run(ctx)
				}()
				synctest.Wait()
				b := start(t, m, "b")
				time.Sleep(3 * ttl)
				synctest.Wait()
				require.True(t, b.probe.runs() || name == "fails at once")
				if name != "fails at once" {
					require.Equal(t, ended, b.probe.history()[0].started)
				}
				failed := events.of(joblease.EventWorkFailed)
				if name == "is finished" {
					require.Empty(t, failed)
				} else {
					require.NotEmpty(t, failed)
					require.ErrorIs(t, failed[0].Err, boom)
				}
				select {
				case err := <-done:
					require.False(t, c.runs)
					require.ErrorIs(t, err, c.err)
				default:
					require.True(t, c.runs)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

func TestAReplicaWhoseSchedulerFailsLetsTheOthersTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		tries := 0
		a, err := joblease.NewSupervisor(m, "job", joblease.Func(func(context.Context) error { tries++; return errCut }), quiet("a"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(time.Hour)
		require.Equal(t, joblease.Paused, a.Status().State)
		require.Less(t, tries, 300, "with a pause between tries")
		require.Greater(t, tries, 200, "and for ever")
		b := start(t, m, "b")
		synctest.Wait()
		require.True(t, b.probe.runs())
		cancel()
		require.NoError(t, <-done)
	})
}

func TestTheSchedulersErrorAtShutdownIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		sup, err := joblease.NewSupervisor(m, "job", joblease.Func(func(ctx context.Context) error { <-ctx.Done(); return errCut }), quiet("a"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		require.ErrorIs(t, sup.Run(ctx), errCut)
		require.False(t, row(t, m).Held())
		require.NoError(t, sup.Run(ctx), "a context that has ended starts nothing")
	})
}

func TestFiveHundredLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays behind
		m := storetest.NewMemory()
		a := start(t, m, "a") // its probe panics when started twice
		for range 500 {
			synctest.Wait()
			m.Delete("job")
			time.Sleep(ttl)
		}
		require.NoError(t, a.shutdown())
		terms := a.probe.history()
		require.Len(t, terms, 501)
		for i, term := range terms {
			require.False(t, term.stopped.IsZero())
			require.True(t, i == 0 || !term.started.Before(terms[i-1].stopped))
		}
	})
}

func TestResignHandsTheLeaseToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, _ *joblease.Config) { r.probe.stopping = func() { time.Sleep(time.Second) } })
		synctest.Wait()
		b := start(t, m, "b")
		time.Sleep(time.Minute)
		require.NoError(t, b.Resign(t.Context()), "it has nothing to resign")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.ErrorIs(t, a.Resign(ctx), context.DeadlineExceeded)
		require.NoError(t, a.Resign(t.Context()))
		synctest.Wait()
		require.True(t, b.probe.runs())
		require.False(t, a.probe.runs())
		require.Equal(t, a.probe.history()[0].stopped, b.probe.history()[0].started)
		time.Sleep(time.Hour)
		require.Len(t, b.probe.history(), 1)
		require.Equal(t, joblease.Standby, a.Status().State)
		b.kill()
		time.Sleep(2 * ttl)
		require.True(t, a.probe.runs())
	})
}

func TestAReplicaThatResignsWithAnErrorStaysAwayAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		sup, stop := supervise(t, m, joblease.Func(func(ctx context.Context) error { <-ctx.Done(); return errCut }))
		synctest.Wait()
		require.NoError(t, sup.Resign(t.Context()))
		time.Sleep(ttl - time.Second)
		require.False(t, row(t, m).Held())
		time.Sleep(2 * time.Second)
		require.True(t, row(t, m).Held())
		require.ErrorIs(t, stop(), errCut)
	})
}

func TestAResignationThatOverrunsDoesNotEndTheSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a", func(r *replica, _ *joblease.Config) { r.probe.stopping = func() { time.Sleep(5 * time.Minute) } })
		synctest.Wait()
		b := start(t, m, "b")
		time.Sleep(time.Minute)
		require.NoError(t, a.Resign(t.Context()))
		require.Len(t, a.events.of(joblease.EventOverrun), 1)
		require.True(t, b.probe.runs(), "after the expiry")
		b.kill()
		time.Sleep(time.Minute)
		require.True(t, a.probe.runs())
		a.probe.stopping = nil
	})
}

func TestARunningSupervisorRefusesASecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, storetest.NewMemory(), "a")
		synctest.Wait()
		require.ErrorContains(t, a.Run(t.Context()), "runs already")
		require.True(t, a.probe.runs())
	})
}

func TestAReleaseWakesAStandbyAndWithoutNotificationsPollingTakesOver(t *testing.T) {
	for _, notify := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			m.SetNotify(notify)
			a := start(t, m, "a")
			synctest.Wait()
			b := start(t, m, "b")
			time.Sleep(time.Minute)
			require.NoError(t, a.shutdown())
			released := time.Now()
			time.Sleep(ttl)
			waited := b.probe.history()[0].started.Sub(released)
			if notify {
				require.Zero(t, waited)
			} else {
				require.LessOrEqual(t, waited, ttl/3)
			}
		})
	}
}

func TestAStandbyLooksAboutOncePerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		start(t, m, "a")
		synctest.Wait()
		b := start(t, m, "b")
		time.Sleep(100 * ttl)
		require.LessOrEqual(t, b.line.statements(), 150)
	})
}

func TestALeaseThatIsLockedDoesNotDisturbAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		other, err := joblease.NewSupervisor(a.line, "other", joblease.Idle(), quiet("a"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- other.Run(ctx) }()
		synctest.Wait()
		unlock := m.Lock("job")
		for range 600 {
			time.Sleep(time.Second / 10)
			require.True(t, other.Status().Held)
		}
		require.False(t, a.Status().Held, "a lock for longer than the TTL is a loss")
		unlock()
		time.Sleep(ttl)
		require.True(t, a.probe.runs())
		cancel()
		require.NoError(t, <-done)
	})
}

func TestTheStatusCanBeServedAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, storetest.NewMemory(), "a", func(r *replica, _ *joblease.Config) { r.line.set(refused) })
		synctest.Wait()
		text, err := json.Marshal(a.Status())
		require.NoError(t, err)
		require.JSONEq(t, `{"Lease": "job", "Replica": "a", "State": "standby", "Held": false, "Token": 0,
			"TrustedUntil": "0001-01-01T00:00:00Z", "Terms": 0, "Holder": "", "Failures": 1, "Err": "connection refused"}`, string(text))
		text, err = json.Marshal(joblease.Event{Kind: joblease.EventLost})
		require.NoError(t, err)
		require.Contains(t, string(text), `"Kind":"lost"`)
	})
}

func TestStatusAndIsLeaderDoNotWaitForAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, storetest.NewMemory(), "a")
		synctest.Wait()
		a.line.set(deaf)
		time.Sleep(ttl / 2) // a renewal hangs
		began := time.Now()
		require.NoError(t, a.IsLeader(t.Context()))
		require.True(t, a.Status().Held)
		require.Zero(t, time.Since(began)) // in a bubble: nothing was waited for
		a.line.set(none)
	})
}
