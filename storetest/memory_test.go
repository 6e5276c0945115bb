package storetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
)

func claim(ttl time.Duration) joblease.Claim {
	return joblease.Claim{Name: "job", ID: joblease.NewClaimID(), Holder: "replica", TTL: ttl}
}

func mustAcquire(t *testing.T, m *storetest.Memory, c joblease.Claim) joblease.Grant {
	t.Helper()
	g, err := m.Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTheClockFollowsTheBubblesTimeExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := mustAcquire(t, m, claim(time.Minute))
		if want := time.Now().Add(time.Minute); !g.ExpiresAt.Equal(want) {
			t.Errorf("expires at %v; want %v", g.ExpiresAt, want)
		}
		time.Sleep(time.Minute - 1)
		if r, _ := m.Get("job"); !r.Held() || r.Remaining != 1 {
			t.Errorf("a nanosecond before the expiry %v remain", r.Remaining)
		}
		time.Sleep(time.Nanosecond)
		if r, _ := m.Get("job"); r.Held() {
			t.Errorf("at the expiry %v remain", r.Remaining)
		}
	})
}

func TestAStepMovesTheClockAndNoStoredInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		mustAcquire(t, m, claim(time.Minute))
		before, _ := m.Get("job")
		for _, d := range []time.Duration{time.Hour, -2 * time.Hour} {
			clock := m.Now()
			m.Step(d)
			if got := m.Now().Sub(clock); got != d {
				t.Errorf("a step of %v moved the clock by %v", d, got)
			}
			if r, _ := m.Get("job"); !r.ExpiresAt.Equal(before.ExpiresAt) || !r.RenewedAt.Equal(before.RenewedAt) {
				t.Errorf("a step of %v changed the row from %+v to %+v", d, before, r)
			}
		}
		if r, _ := m.Get("job"); r.Remaining != time.Minute+time.Hour {
			t.Errorf("%v remain after the clock went back by an hour", r.Remaining)
		}
	})
}

func TestARenewalWaitsForAllLocksOfTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := mustAcquire(t, m, claim(time.Minute))
		first, second := m.Lock("job"), m.Lock("job")
		done := make(chan error, 1)
		go func() { done <- m.Renew(t.Context(), g) }()
		first()
		first()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("renewed under a lock: %v", err)
		default:
		}
		second()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestARowDeletedUnderALockIsLostAtTheUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		g := mustAcquire(t, m, claim(time.Minute))
		unlock := m.Lock("job")
		done := make(chan error, 1)
		go func() { done <- m.Renew(t.Context(), g) }()
		synctest.Wait()
		m.Delete("job")
		unlock()
		if err := <-done; !errors.Is(err, joblease.ErrLost) {
			t.Errorf("%v; want ErrLost", err)
		}
	})
}

func TestANameWithoutARowCanBeLocked(t *testing.T) {
	m := storetest.NewMemory()
	unlock := m.Lock("job")
	var h *joblease.HeldError
	if _, err := m.Acquire(t.Context(), claim(time.Minute)); !errors.As(err, &h) || !h.Claim.IsZero() {
		t.Errorf("%v; want a refusal that names no claim", err)
	}
	unlock()
	mustAcquire(t, m, claim(time.Minute))
}

func TestTheEndOfTheContextIsTheError(t *testing.T) {
	m := storetest.NewMemory()
	g := mustAcquire(t, m, claim(time.Minute))
	unlock := m.Lock("job")
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := m.Renew(ctx, g); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want context.DeadlineExceeded", err)
	}
}

func TestWhenNotificationsAreCutWatchersLearnItAndReleasesAreSilent(t *testing.T) {
	m := storetest.NewMemory()
	w := m.Watch("job")
	woken := func() bool {
		select {
		case <-w.Wake:
			return true
		default:
			return false
		}
	}
	if !w.Live() || woken() {
		t.Error("a new watch is not live, or was woken")
	}
	m.SetNotify(false)
	if w.Live() || !woken() {
		t.Error("the cut was not told")
	}
	g := mustAcquire(t, m, claim(time.Minute))
	if err := m.Release(t.Context(), g); err != nil || woken() {
		t.Errorf("a release was told though notifications are cut (%v)", err)
	}
	m.SetNotify(true)
	if !w.Live() || !woken() {
		t.Error("the mending was not told")
	}
	m.SetNotify(true)
	if woken() {
		t.Error("no change was told as a change")
	}
	w.Stop()
	if w.Live() {
		t.Error("a stopped watch is live")
	}
}

func TestPutWritesTheRowAsGiven(t *testing.T) {
	m := storetest.NewMemory()
	now := m.Now()
	want := joblease.Record{
		Name: "job", Holder: "operator", Claim: joblease.NewClaimID(), Token: 7, Version: 9, TTL: time.Minute,
		AcquiredAt: now, RenewedAt: now, ExpiresAt: now.Add(time.Minute),
		Tick: now.Truncate(time.Second), TickDone: false,
	}
	m.Put(want)
	got, ok := m.Get("job")
	want.Remaining = got.Remaining
	if !ok || got != want || got.Remaining > time.Minute {
		t.Errorf("got %+v, %v; want %+v", got, ok, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a row without a token was accepted")
		}
	}()
	m.Put(joblease.Record{Name: "job", Version: 1})
}

func TestAClaimWithoutIdentityOrTTLIsRefused(t *testing.T) {
	m := storetest.NewMemory()
	for _, c := range []joblease.Claim{{Name: "job", TTL: time.Minute}, {Name: "job", ID: joblease.NewClaimID()}} {
		if _, err := m.Acquire(t.Context(), c); err == nil || errors.Is(err, joblease.ErrHeld) {
			t.Errorf("%+v: %v; want an error", c, err)
		}
	}
}
