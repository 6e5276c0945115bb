package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/joblease/joblease"
)

// Memory is a [joblease.Store] and a [joblease.Watcher] in memory, for tests of
// services and of joblease itself. It keeps the contract as a real database
// does; leases that share one Memory are replicas on one database.
//
// Its clock starts at the local wall clock's time and advances with the local
// monotonic clock, so that inside a testing/synctest bubble it follows the
// bubble's time, if the Memory was made in the bubble. [Memory.Step] steps it.
//
// All methods are safe for concurrent use. A renewal or a release waits for a
// row that [Memory.Lock] locked, and nothing else ever waits.
type Memory struct {
	start time.Time

	mu       sync.Mutex
	offset   time.Duration
	rows     map[string]row
	locks    map[string]*rowLock
	watchers map[*watcher]struct{}
	deaf     bool
}

var (
	_ joblease.Store   = (*Memory)(nil)
	_ joblease.Watcher = (*Memory)(nil)
)

// row is what a table would store of a lease: a [joblease.Record] without what
// depends on the instant of the answer.
type row struct {
	holder                           string
	claim                            joblease.ClaimID
	token, version                   int64
	ttl                              time.Duration
	acquiredAt, renewedAt, expiresAt time.Time
	tick                             time.Time
	unfinished                       bool // the run of tick
}

// rowLock is held by n sessions together; free is closed by the last.
type rowLock struct {
	n    int
	free chan struct{}
}

// NewMemory returns an empty lease table whose clock shows the local time.
func NewMemory() *Memory {
	return &Memory{
		start:    time.Now(),
		rows:     map[string]row{},
		locks:    map[string]*rowLock{},
		watchers: map[*watcher]struct{}{},
	}
}

// Acquire implements [joblease.Store].
func (m *Memory) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	g, err := m.acquire(ctx, c)
	if err != nil && !errors.Is(err, joblease.ErrHeld) && !errors.As(err, new(*joblease.TickError)) {
		err = fmt.Errorf("storetest: acquire %q: %w", c.Name, err)
	}
	return g, err
}

func (m *Memory) acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	if err := ctx.Err(); err != nil {
		return joblease.Grant{}, err
	}
	if err := errors.Join(joblease.CheckName(c.Name), joblease.CheckTick(c.Tick)); err != nil {
		return joblease.Grant{}, err
	}
	if c.ID.IsZero() || c.TTL <= 0 {
		return joblease.Grant{}, errors.New("a claim needs an ID and a positive TTL")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	r, found := m.rows[c.Name]
	tick := tickOf(c.Tick, r, now)
	if r.claim != c.ID && !claimable(c.Tick, tick, r, now) {
		return joblease.Grant{}, &joblease.TickError{
			Name: c.Name, At: tick, Last: r.tick, Done: !r.unfinished, Clock: now,
		}
	}
	if m.locks[c.Name] != nil || found && !takes(c, r, now) {
		return joblease.Grant{}, &joblease.HeldError{
			Name: c.Name, Holder: r.holder, Token: r.token, Claim: r.claim, Version: r.version,
			TTL: r.ttl, Remaining: r.remaining(now), Clock: now,
		}
	}
	if r.version == math.MaxInt64 || r.claim != c.ID && r.token == math.MaxInt64 {
		return joblease.Grant{}, errors.New("the token or the version is at its maximum")
	}
	if r.claim != c.ID {
		r.claim, r.acquiredAt = c.ID, now
		r.token++
		if !tick.IsZero() {
			r.tick, r.unfinished = tick, true
		}
	}
	r.holder = c.Holder
	r.extend(now, c.TTL)
	m.rows[c.Name] = r
	g := joblease.Grant{
		Name: c.Name, Claim: r.claim, Holder: r.holder, Token: r.token, TTL: r.ttl,
		AcquiredAt: r.acquiredAt, ExpiresAt: r.expiresAt,
	}
	if !c.Tick.IsZero() {
		g.Tick = r.tick
	}
	return g, nil
}

// takes reports whether c may take a row that stands there as r.
func takes(c joblease.Claim, r row, now time.Time) bool {
	if r.claim.IsZero() || r.claim == c.ID {
		return true
	}
	expired := !now.Before(r.expiresAt)
	sighted := r.claim == c.Takeover.Claim && r.version == c.Takeover.Version
	switch c.Takeover.Rule {
	case joblease.TakeExpired:
		return expired
	case joblease.TakeSightedExpired:
		return sighted && expired
	case joblease.TakeSighted:
		return sighted
	}
	return false
}

// Renew implements [joblease.Store].
func (m *Memory) Renew(ctx context.Context, g joblease.Grant) error {
	return m.update(ctx, "renew", g, func(r *row, now time.Time) {
		r.extend(now, g.TTL)
	})
}

// Release implements [joblease.Store].
func (m *Memory) Release(ctx context.Context, g joblease.Grant) error {
	return m.update(ctx, "release", g, func(r *row, now time.Time) {
		r.holder, r.claim = "", joblease.ClaimID{}
		r.renewedAt, r.expiresAt = now, now
		if g.Finished && r.tick.Equal(g.Tick) {
			r.unfinished = false
		}
		r.version++
		m.released(g.Name)
	})
}

// update applies write to the row of g if g still holds it, once nobody locks it.
func (m *Memory) update(ctx context.Context, verb string, g joblease.Grant, write func(*row, time.Time)) error {
	if err := m.lockUnlocked(ctx, g.Name); err != nil {
		return fmt.Errorf("storetest: %s %q: %w", verb, g.Name, err)
	}
	defer m.mu.Unlock()
	r, found := m.rows[g.Name]
	switch {
	case !found || g.Claim.IsZero() || r.claim != g.Claim:
		return fmt.Errorf("storetest: %s %q: %w", verb, g.Name, joblease.ErrLost)
	case r.version == math.MaxInt64:
		return fmt.Errorf("storetest: %s %q: the version is at its maximum", verb, g.Name)
	}
	write(&r, m.now())
	m.rows[g.Name] = r
	return nil
}

// lockUnlocked locks m.mu at an instant at which no session locks the row of name.
func (m *Memory) lockUnlocked(ctx context.Context, name string) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.mu.Lock()
		l := m.locks[name]
		if l == nil {
			return nil
		}
		m.mu.Unlock()
		select {
		case <-l.free:
		case <-ctx.Done():
		}
	}
}

// List implements [joblease.Store].
func (m *Memory) List(ctx context.Context) ([]joblease.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("storetest: list: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	records := make([]joblease.Record, 0, len(m.rows))
	for name, r := range m.rows {
		records = append(records, r.record(name, now))
	}
	slices.SortFunc(records, func(a, b joblease.Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

func (r *row) extend(now time.Time, ttl time.Duration) {
	r.ttl, r.renewedAt, r.expiresAt = ttl, now, now.Add(ttl)
	r.version++
}

// remaining is zero where there is no row.
func (r *row) remaining(now time.Time) time.Duration {
	if r.version == 0 {
		return 0
	}
	return r.expiresAt.Sub(now)
}

func (r *row) record(name string, now time.Time) joblease.Record {
	return joblease.Record{
		Name: name, Holder: r.holder, Claim: r.claim, Token: r.token, Version: r.version, TTL: r.ttl,
		AcquiredAt: r.acquiredAt, RenewedAt: r.renewedAt, ExpiresAt: r.expiresAt,
		Remaining: r.remaining(now), Tick: r.tick, TickDone: !r.unfinished,
	}
}
