package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/joblease/joblease"
)

const (
	// long outlives every check, however slow the machine.
	long = time.Hour
	// short is waited for in full where the database's clock cannot be stepped.
	short = joblease.MinTTL
	// slack is how far apart two readings of the database's clock within one
	// statement may be.
	slack = 20 * time.Millisecond
)

// env is what a check has: the test, the backend, and a first handle on it.
type env struct {
	testing.TB
	b Backend
	s joblease.Store

	// patience is when a call that must return, or a thing that must come to
	// pass, is given up.
	patience time.Duration
	// promptly is the bound on calls that must not wait for anything: far above
	// what they take, and far below a usual lock timeout.
	promptly time.Duration
}

func newEnv(tb testing.TB, b Backend) *env {
	return &env{TB: tb, b: b, s: b.Open(), patience: time.Minute, promptly: 3 * time.Second}
}

// needs skips the check if the backend does not offer the hook.
func (e *env) needs(hook string, offered bool) {
	e.Helper()
	if !offered {
		e.Skipf("the backend has no %s", hook)
	}
}

// claim returns a new claim. Its holder's label need not be unique, so it is not.
func claim(name string, ttl time.Duration, takeover joblease.Takeover) joblease.Claim {
	return joblease.Claim{
		Name: name, ID: joblease.NewClaimID(), Holder: "replica", TTL: ttl, Takeover: takeover,
	}
}

var (
	never   = joblease.Takeover{Rule: joblease.TakeNever}
	expired = joblease.Takeover{Rule: joblease.TakeExpired}
)

// sighted returns the takeover condition of a candidate that last saw r.
func sighted(rule joblease.TakeoverRule, r joblease.Record) joblease.Takeover {
	return joblease.Takeover{Rule: rule, Claim: r.Claim, Version: r.Version}
}

// bounded returns a context in which a store that hangs fails the check instead
// of the whole test binary.
func (e *env) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), e.patience)
}

// acquire, renew and release may be called on any goroutine.
func (e *env) acquire(s joblease.Store, c joblease.Claim) (joblease.Grant, error) {
	ctx, cancel := e.bounded()
	defer cancel()
	return s.Acquire(ctx, c)
}

func (e *env) renew(s joblease.Store, g joblease.Grant) error {
	ctx, cancel := e.bounded()
	defer cancel()
	return s.Renew(ctx, g)
}

func (e *env) release(s joblease.Store, g joblease.Grant) error {
	ctx, cancel := e.bounded()
	defer cancel()
	return s.Release(ctx, g)
}

// granted acquires c, which must succeed, and checks the grant against c.
func (e *env) granted(c joblease.Claim) joblease.Grant {
	e.Helper()
	g, err := e.acquire(e.s, c)
	if err != nil {
		e.Fatalf("acquire %q: %v; want a grant", c.Name, err)
	}
	e.grantFits(g, c)
	return g
}

// grantFits checks g as the answer to c.
func (e *env) grantFits(g joblease.Grant, c joblease.Claim) {
	e.Helper()
	if g.Name != c.Name || g.Claim != c.ID || g.Holder != c.Holder {
		e.Fatalf("the grant is %q, claim %v, holder %q; asked for was %q, claim %v, holder %q",
			g.Name, g.Claim, g.Holder, c.Name, c.ID, c.Holder)
	}
	if g.Token < 1 {
		e.Fatalf("token %d; the first of a row is 1", g.Token)
	}
	if !sameTTL(g.TTL, c.TTL) {
		e.Fatalf("the grant's TTL is %v; asked for was %v", g.TTL, c.TTL)
	}
	if g.AcquiredAt.IsZero() || g.ExpiresAt.Before(g.AcquiredAt.Add(c.TTL-slack)) {
		e.Fatalf("acquired at %v, expires at %v; the TTL is %v", g.AcquiredAt, g.ExpiresAt, c.TTL)
	}
	switch {
	case c.Tick.IsZero() && !g.Tick.IsZero(), c.Tick.Slot == 0 && !g.Tick.Equal(micro(c.Tick.At)):
		e.Fatalf("the grant is of the tick %v; asked for was %+v", g.Tick, c.Tick)
	case c.Tick.Slot > 0 && g.Tick.UnixMicro()%c.Tick.Slot.Microseconds() != 0:
		e.Fatalf("the tick %v is not where a slot of %v begins", g.Tick, c.Tick.Slot)
	case !g.Tick.IsZero() && g.Tick.Location() != time.UTC:
		e.Fatalf("the tick %v is not in UTC", g.Tick)
	}
}

// held acquires c, which must be refused because another claim holds the lease.
func (e *env) held(c joblease.Claim) *joblease.HeldError {
	e.Helper()
	g, err := e.acquire(e.s, c)
	if err == nil {
		e.Fatalf("acquire %q was granted, token %d; want ErrHeld", c.Name, g.Token)
	}
	return e.isHeld(err, c.Name)
}

func (e *env) isHeld(err error, name string) *joblease.HeldError {
	e.Helper()
	var h *joblease.HeldError
	if !errors.Is(err, joblease.ErrHeld) || !errors.As(err, &h) {
		e.Fatalf("acquire %q: %v; want a *joblease.HeldError", name, err)
	}
	if errors.Is(err, joblease.ErrLost) {
		e.Fatalf("%v is both ErrHeld and ErrLost", err)
	}
	if h.Name != name {
		e.Fatalf("the refusal names %q; asked for was %q", h.Name, name)
	}
	return h
}

// renewed renews g, which must succeed.
func (e *env) renewed(g joblease.Grant) {
	e.Helper()
	if err := e.renew(e.s, g); err != nil {
		e.Fatalf("renew %q: %v; want success", g.Name, err)
	}
}

// released releases g, which must succeed.
func (e *env) released(g joblease.Grant) {
	e.Helper()
	if err := e.release(e.s, g); err != nil {
		e.Fatalf("release %q: %v; want success", g.Name, err)
	}
}

// lost requires ErrLost from both a renewal and a release of g, and that
// neither changes anything in the table.
func (e *env) lost(g joblease.Grant) {
	e.Helper()
	before := e.list()
	if err := e.renew(e.s, g); !errors.Is(err, joblease.ErrLost) || errors.Is(err, joblease.ErrHeld) {
		e.Fatalf("renew %q: %v; want ErrLost", g.Name, err)
	}
	e.unchanged(before, "a renewal that is lost")
	if err := e.release(e.s, g); !errors.Is(err, joblease.ErrLost) || errors.Is(err, joblease.ErrHeld) {
		e.Fatalf("release %q: %v; want ErrLost", g.Name, err)
	}
	e.unchanged(before, "a release that is lost")
}

// unknown requires of err that it is an error but neither decision.
func (e *env) unknown(err error, what string) {
	e.Helper()
	if err == nil || errors.Is(err, joblease.ErrHeld) || errors.Is(err, joblease.ErrLost) {
		e.Fatalf("%s: %v; want an error that is neither ErrHeld nor ErrLost", what, err)
	}
}
