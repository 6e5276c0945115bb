package joblease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

func newLease(t *testing.T, s joblease.Store, holder string) *joblease.Lease {
	t.Helper()
	l, err := joblease.New(s, "job", quiet(holder))
	require.NoError(t, err)
	return l
}

func TestAConstructorNamesTheFieldItsValueAndTheRule(t *testing.T) {
	m := storetest.NewMemory()
	second := time.Second
	for name, c := range map[string]struct {
		store joblease.Store
		lease string
		cfg   joblease.Config
		field string
		says  []string
	}{
		"nil store":           {nil, "job", joblease.Config{}, "Store", []string{"must not be nil"}},
		"empty name":          {m, "", joblease.Config{}, "Name", []string{"must not be empty"}},
		"long name":           {m, strings.Repeat("x", 256), joblease.Config{}, "Name", []string{"256 bytes", "255"}},
		"name with zero":      {m, "a\x00b", joblease.Config{}, "Name", []string{"zero byte"}},
		"name not UTF-8":      {m, "a\xffb", joblease.Config{}, "Name", []string{"UTF-8"}},
		"long holder":         {m, "job", joblease.Config{Holder: strings.Repeat("x", 256)}, "Holder", []string{"255"}},
		"endless TTL":         {m, "job", joblease.Config{TTL: 1<<63 - 1}, "TTL", []string{"at most 8760h"}},
		"typed nil store":     {(*storetest.Memory)(nil), "job", joblease.Config{}, "Store", []string{"sqlstore.NewSQLite"}},
		"RenewEvery no unit":  {m, "job", joblease.Config{RenewEvery: 5}, "RenewEvery", []string{"5ns", "nanoseconds"}},
		"CallTimeout no unit": {m, "job", joblease.Config{CallTimeout: 3}, "CallTimeout", []string{"3ns", "nanoseconds"}},
		"Margin no unit":      {m, "job", joblease.Config{Margin: 1}, "Margin", []string{"1ns", "nanoseconds"}},
		"short TTL":           {m, "job", joblease.Config{TTL: 49 * time.Millisecond}, "TTL", []string{"49ms", "50ms"}},
		"negative TTL":        {m, "job", joblease.Config{TTL: -1}, "TTL", []string{"-1ns"}},
		"negative Margin":     {m, "job", joblease.Config{Margin: -second}, "Margin", []string{"-1s", "positive"}},
		"negative StopTime":   {m, "job", joblease.Config{StopTimeout: -second}, "StopTimeout", []string{"positive"}},
		"RenewEvery too big":  {m, "job", joblease.Config{RenewEvery: 20 * second}, "RenewEvery", []string{"20s", "TTL", "15s"}},
		"overflow":            {m, "job", joblease.Config{CallTimeout: 1 << 62}, "CallTimeout", []string{"TTL", "15s"}},
		"sum": {m, "job", joblease.Config{TTL: 10 * second, RenewEvery: 5 * second, CallTimeout: 2 * second, Margin: second}, "TTL",
			[]string{"10s", "RenewEvery + 2*CallTimeout + Margin", "5s + 2*2s + 1s = 10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(err error) {
				var bad *joblease.ConfigError
				require.ErrorAs(t, err, &bad)
				require.Equal(t, c.field, bad.Field)
				for _, s := range c.says {
					require.ErrorContains(t, err, s)
				}
			}
			_, err := joblease.New(c.store, c.lease, c.cfg)
			check(err)
			_, err = joblease.NewSupervisor(c.store, c.lease, joblease.Idle(), c.cfg)
			check(err)
		})
	}
	for name, sch := range map[string]joblease.Scheduler{
		"Scheduler": nil, "Func": joblease.Func(nil), "Cron": joblease.Cron(nil), "PerTerm": joblease.PerTerm[*foreign](nil),
		"Every": joblease.Every(0, func(context.Context) error { return nil }),
	} {
		var bad *joblease.ConfigError
		_, err := joblease.NewSupervisor(m, "job", sch, joblease.Config{})
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Field)
	}
	_, err := joblease.New(m, strings.Repeat("x", 255), joblease.Config{})
	require.NoError(t, err)
}

func TestTheHolderAcquiresAgainAndOneReleaseFreesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a, b := newLease(t, m, "a"), newLease(t, m, "a") // the same label decides nothing
		first, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		again, err := a.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, first.Token, again.Token)
		require.Equal(t, first.Claim, again.Claim)

		var held *joblease.HeldError
		_, err = b.TryAcquire(t.Context())
		require.ErrorAs(t, err, &held)
		require.ErrorIs(t, err, joblease.ErrHeld)
		require.Equal(t, "a", held.Holder)
		require.Equal(t, ttl, held.Remaining)

		require.NoError(t, a.Release(t.Context()))
		require.False(t, a.Held())
		require.ErrorIs(t, a.Release(t.Context()), joblease.ErrLost)
		g, err := b.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, first.Token+1, g.Token)
		require.ErrorIs(t, a.Renew(t.Context()), joblease.ErrLost)
		require.ErrorIs(t, a.Release(t.Context()), joblease.ErrLost)
		require.Equal(t, g.Claim, row(t, m).Claim)
	})
}

func TestAGrantWhoseAnswerWasLostIsFoundAtTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		w := newLine(m)
		a := newLease(t, w, "a")
		w.set(answerLost)
		_, err := a.TryAcquire(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, joblease.ErrHeld)
		require.NotErrorIs(t, err, joblease.ErrLost)
		require.False(t, a.Held())
		require.True(t, row(t, m).Held())
		w.set(none)
		g, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(1), g.Token)
	})
}

func TestAGrantWhoseAnswerWasLostIsGivenBackByRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		w := newLine(m)
		a := newLease(t, w, "a")
		w.set(answerLost)
		_, err := a.TryAcquire(t.Context())
		require.Error(t, err)
		w.set(none)
		require.NoError(t, a.Release(t.Context()))
		require.False(t, row(t, m).Held())
	})
}

func TestARenewalWhoseAnswerWasLostLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(storetest.NewMemory())
		a := newLease(t, w, "a")
		g, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		w.set(answerLost)
		require.Error(t, a.Renew(t.Context()))
		require.True(t, a.Held())
		w.set(none)
		require.NoError(t, a.Renew(t.Context()))
		require.Equal(t, g.Token, row(t, w.Memory).Token)
	})
}

func TestTrustEndsOneMarginBeforeTheExpiryCountedFromTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(storetest.NewMemory())
		a := newLease(t, w, "a")
		w.setDelay(2 * time.Second) // of the answers
		began := time.Now()
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Until(began.Add(trust)) - 1)
		require.True(t, a.Held())
		time.Sleep(time.Nanosecond)
		require.False(t, a.Held())
		require.Positive(t, row(t, w.Memory).Remaining)
		var lost *joblease.LostError
		require.ErrorAs(t, a.Renew(t.Context()), &lost, "the end of trust is a loss, also where the row still stands")
		require.Equal(t, joblease.LostExpired, lost.Reason)
	})
}

func TestARenewalThatAnswersAfterTheEndOfTrustComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(storetest.NewMemory())
		a := newLease(t, w, "a")
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(trust - time.Second)
		w.setDelay(2 * time.Second)
		require.ErrorIs(t, a.Renew(t.Context()), joblease.ErrLost)
		require.False(t, a.Held())
	})
}

func TestALoserReleasesItsOwnOldClaimAndNeverItsSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		w := newLine(m)
		a, b := newLease(t, w, "a"), newLease(t, m, "b")
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(trust)
		// The row still carries a's claim, and only a knows that nobody relies on
		// it: a need not wait for it to expire.
		g, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), g.Token, "a term of its own")

		time.Sleep(ttl)
		successor, err := b.TryAcquire(t.Context())
		require.NoError(t, err)
		_, err = a.TryAcquire(t.Context())
		require.ErrorIs(t, err, joblease.ErrHeld)
		require.Equal(t, successor.Claim, row(t, m).Claim)
		require.Equal(t, int64(4), row(t, m).Version, "insert, release, take, take: and no write by the loser after that")
	})
}

func TestAcquireWaitsThroughErrorsUntilItHasTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(storetest.NewMemory())
		a := newLease(t, w, "a")
		w.set(refused)
		got := make(chan error, 1)
		go func() { _, err := a.Acquire(t.Context()); got <- err }()
		time.Sleep(time.Hour)
		require.Less(t, w.statements(), 3600, "it asks at a bounded rate")
		w.set(none)
		require.NoError(t, <-got)
	})
}

func TestAcquireThatIsCancelledLeavesNothingBehind(t *testing.T) {
	for _, f := range []fault{none, answerLost} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			w := newLine(m)
			a := newLease(t, w, "a")
			w.set(f)
			w.setDelay(time.Second)
			ctx, cancel := context.WithCancelCause(t.Context())
			got := make(chan error, 1)
			go func() { _, err := a.Acquire(ctx); got <- err }()
			time.Sleep(time.Second / 2)
			cancel(errCut)
			if f == answerLost {
				time.Sleep(2 * time.Second)
				w.set(none) // before the release
			}
			require.ErrorIs(t, <-got, errCut)
			require.False(t, row(t, m).Held())
			require.False(t, a.Held())
		})
	}
}

func TestACancelledAcquireOfALeaseThatIsHeldAlreadyDoesNotReleaseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(storetest.NewMemory())
		a := newLease(t, w, "a")
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, a.Held())
	})
}

func TestALockOnTheRowIsNotARival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := newLease(t, m, "a")
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		unlock := m.Lock("job")
		_, err = a.TryAcquire(t.Context())
		require.ErrorContains(t, err, "locks its row")
		require.NotErrorIs(t, err, joblease.ErrHeld)
		require.True(t, a.Held())
		unlock()
		g, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(1), g.Token)
	})
}

func TestAnAnswerThatComesAfterTheLossDoesNotBringTheTermBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		w := newLine(m)
		a := newLease(t, w, "a")
		err := a.Do(t.Context(), func(ctx context.Context) error {
			w.set(refused)
			time.Sleep(trust - time.Second)
			w.set(none)
			w.setDelay(2 * time.Second) // trust ends while this is under way
			_, err := a.TryAcquire(context.Background())
			require.ErrorIs(t, err, joblease.ErrLost)
			require.False(t, a.Held())
			require.Error(t, ctx.Err())
			return nil
		})
		require.ErrorIs(t, err, joblease.ErrLost)
	})
}

func TestAClaimThatIsGrantedAnewIsNotTheTermThatWasOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a, b := newLease(t, m, "a"), newLease(t, m, "b")
		err := a.Do(t.Context(), func(ctx context.Context) error {
			m.Step(time.Hour) // which the first look of b trusts
			_, err := b.TryAcquire(ctx)
			require.NoError(t, err)
			require.NoError(t, b.Release(ctx))
			_, err = a.TryAcquire(ctx)
			require.ErrorIs(t, err, joblease.ErrLost)
			require.ErrorIs(t, context.Cause(ctx), joblease.ErrLost)
			return nil
		})
		require.ErrorIs(t, err, joblease.ErrLost)
		g, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(4), g.Token)
	})
}

func TestACancelledAcquireDoesNotReleaseALeaseThatWaitsToBeConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		ahead := time.Duration(0)
		a, b := newLease(t, m, "a"), newLease(t, m, "b")
		a.ShiftWall(func() time.Duration { return ahead })
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		ahead = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		_, err = b.TryAcquire(t.Context())
		require.ErrorIs(t, err, joblease.ErrHeld)
	})
}

func TestALeaseIsNotHeldAfterReleaseWhateverCameBack(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			a := newLease(t, storetest.NewMemory(), "a")
			_, err := a.TryAcquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, a.Release(ctx))
			require.False(t, a.Held())
			g, err := a.TryAcquire(t.Context())
			require.NoError(t, err)
			require.Equal(t, int64(2), g.Token)
		})
	}
}

func TestWorkThatStopsInTimeIsNoOverrunThoughARenewalIsSlow(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newLine(storetest.NewMemory())
			cfg := quiet("a")
			cfg.StopTimeout = 6 * time.Second
			a, err := joblease.New(w, "job", cfg)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, a.Do(ctx, func(context.Context) error {
				w.setDelay(2500 * time.Millisecond)
				cancel()
				time.Sleep(5500 * time.Millisecond)
				return nil
			}))
		})
	}
}

func TestNothingIsAcquiredWhileTheWorkOfALostTermStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		w := newLine(m)
		a := newLease(t, w, "a")
		_ = a.Do(t.Context(), func(ctx context.Context) error {
			w.set(refused)
			<-ctx.Done()
			w.set(none)
			before := row(t, m)
			_, err := a.TryAcquire(context.Background())
			require.ErrorIs(t, err, joblease.ErrLost)
			require.Equal(t, before, row(t, m), "nor is the old claim freed")
			return nil
		})
	})
}

func TestARefusalWhileTheLeaseIsHeldIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := newLease(t, m, "a")
		_ = a.Do(t.Context(), func(ctx context.Context) error {
			theft(m)
			_, err := a.TryAcquire(context.Background())
			require.ErrorIs(t, err, joblease.ErrHeld)
			require.False(t, a.Held())
			require.ErrorIs(t, context.Cause(ctx), joblease.ErrLost)
			return nil
		})
	})
}

func TestDoHoldsTheLeaseWhileTheFunctionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := newLease(t, m, "a")
		require.False(t, joblease.Held(t.Context()))
		err := a.Do(t.Context(), func(ctx context.Context) error {
			g, ok := joblease.GrantFrom(ctx)
			require.True(t, ok)
			require.Equal(t, int64(1), g.Token)
			time.Sleep(10 * ttl)
			require.True(t, joblease.Held(ctx))
			require.NoError(t, ctx.Err())
			require.True(t, row(t, m).Held())
			return errCut
		})
		require.ErrorIs(t, err, errCut)
		require.False(t, row(t, m).Held())
	})
}

func TestDoTellsTheFunctionAndTheCallerOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		err := newLease(t, m, "a").Do(t.Context(), func(ctx context.Context) error {
			m.Delete("job")
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), joblease.ErrLost)
			require.False(t, joblease.Held(ctx))
			return nil
		})
		var lost *joblease.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, joblease.LostReplaced, lost.Reason)
	})
}

func TestDoTakesTurnsOnOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newLease(t, storetest.NewMemory(), "a")
		running, done := 0, make(chan error)
		for range 10 {
			go func() {
				done <- a.Do(t.Context(), func(context.Context) error {
					running++
					defer func() { running-- }()
					time.Sleep(time.Second)
					if running != 1 {
						return errors.New("two at once")
					}
					return nil
				})
			}()
		}
		for range 10 {
			require.NoError(t, <-done)
		}
	})
}

func TestDoReleasesAfterAPanicAndThePanicGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := newLease(t, m, "a")
		defer func() {
			p, ok := recover().(*joblease.PanicError)
			require.True(t, ok)
			require.ErrorIs(t, p, errCut)
			require.Contains(t, p.Error(), "lease_test.go", "the stack of the panic")
			require.False(t, row(t, m).Held())
			require.NoError(t, a.Do(t.Context(), func(context.Context) error { return nil }), "the lease is usable again")
		}()
		_ = a.Do(t.Context(), func(context.Context) error { panic(errCut) })
	})
}

func TestDoReleasesWhenTheFunctionEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		err := newLease(t, m, "a").Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		require.ErrorContains(t, err, "Goexit")
		require.False(t, row(t, m).Held())
	})
}

func TestDoReportsAnOverrunAndLetsNobodyInUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := newLease(t, m, "a")
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		time.AfterFunc(time.Second, cancel)
		err := a.Do(ctx, func(context.Context) error { <-release; return nil })
		var overrun *joblease.OverrunError
		require.ErrorAs(t, err, &overrun)
		require.Equal(t, 30*time.Second, overrun.After)
		require.True(t, row(t, m).Held(), "it is not released")

		time.AfterFunc(time.Hour, func() { close(release) })
		began := time.Now()
		require.NoError(t, a.Do(t.Context(), func(context.Context) error { return nil }))
		require.Equal(t, time.Hour, time.Since(began).Round(time.Minute))
	})
}

func TestAStoreThatHangsBoundsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(storetest.NewMemory())
		a := newLease(t, w, "a")
		_, err := a.TryAcquire(t.Context())
		require.NoError(t, err)
		w.set(blackholed)
		for _, call := range []func(context.Context) error{
			a.Renew,
			func(ctx context.Context) error { _, err := a.TryAcquire(ctx); return err },
			a.Release,
		} {
			began := time.Now()
			require.ErrorIs(t, call(t.Context()), context.DeadlineExceeded)
			require.Equal(t, ttl/5, time.Since(began))
		}
	})
}

func TestErrorsSayWhoWhatAndWhy(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string
	}{
		{&joblease.HeldError{Name: "j", Holder: "h", Claim: joblease.ClaimID{1}, Remaining: time.Second}, `"j" is held by "h" for another 1s`},
		{&joblease.HeldError{Name: "j", Holder: "h", Claim: joblease.ClaimID{1}, Remaining: -time.Second}, "expired 1s ago"},
		{&joblease.HeldError{Name: "j"}, "a transaction locks its row"},
		{&joblease.LostError{Name: "j", Token: 7, Reason: joblease.LostExpired, Err: errCut}, "token 7) lost: it could not be renewed in time: connection refused"},
		{&joblease.SetupError{Problem: "p", Remedy: "r", Err: errCut}, "p; r (connection refused)"},
		{&joblease.OverrunError{After: time.Second, Err: errCut}, "still runs 1s after"},
	} {
		require.ErrorContains(t, c.err, c.says)
	}
	require.ErrorIs(t, &joblease.SetupError{Err: errCut}, errCut)
	require.ErrorIs(t, &joblease.OverrunError{Err: errCut}, errCut)
	require.Equal(t, "TakeoverRule(9)", joblease.TakeoverRule(9).String())
	require.Equal(t, "EventKind(99)", joblease.EventKind(99).String())
	require.Equal(t, "State(9)", joblease.State(9).String())
	require.Len(t, joblease.NewClaimID().String(), 32)
	require.Equal(t, "sighted and expired", fmt.Sprint(joblease.TakeSightedExpired))
}
