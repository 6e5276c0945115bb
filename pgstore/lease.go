package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/joblease/joblease"
)

// Acquire implements [joblease.Store]. It does not wait for locks on the row.
//
// Errors: a *[joblease.TickError] if the claim's tick cannot be claimed, a
// *[joblease.HeldError] if the lease is held, a *[joblease.ConfigError] for a tick
// that [joblease.CheckTick] refuses, a *[joblease.SetupError] if the database is
// not set up, any other if the outcome is unknown.
func (s *Store) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	if err := joblease.CheckTick(c.Tick); err != nil {
		return joblease.Grant{}, fmt.Errorf("joblease: acquire %q: %w", c.Name, err)
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	cmd := command{op: "acquire", name: c.Name, sql: s.sql.acquire, again: true, args: [][]byte{
		[]byte(c.Name), []byte(c.ID.String()), []byte(c.Holder), integer(c.TTL.Microseconds()),
		integer(int64(c.Takeover.Rule)), []byte(c.Takeover.Claim.String()), integer(c.Takeover.Version),
		wanted(c.Tick), instant(c.Tick.At), length(c.Tick.Slot),
	}}
	var wait pause
	for {
		r, err := s.call(ctx, cmd)
		if err != nil {
			return joblease.Grant{}, err
		}
		if len(r.Rows) > 0 {
			a, err := readAnswer(r.Rows[0])
			if err != nil {
				return joblease.Grant{}, fmt.Errorf("joblease: acquire %q: %w", c.Name, err)
			}
			if a.outcome != "granted" {
				return joblease.Grant{}, a.refusal(c.Name)
			}
			if a.expires.After(a.clock) {
				g := joblease.Grant{
					Name: c.Name, Claim: c.ID, Holder: c.Holder, Token: a.token, TTL: c.TTL,
					AcquiredAt: a.acquired, ExpiresAt: a.expires,
				}
				if !c.Tick.IsZero() {
					g.Tick = a.tick
				}
				return g, nil
			}
			// The insert waited for a rival's for longer than the TTL. The row
			// carries the claim now, and the same claim sent again extends it.
		}
		// Otherwise a rival inserted the name while the statement ran, and the
		// next one sees its row.
		if err := wait.sleep(ctx); err != nil {
			return joblease.Grant{}, fmt.Errorf("joblease: acquire %q: rivals insert the name again and again, "+
				"or a row-level security policy hides its row: %w", c.Name, err)
		}
	}
}

// Renew implements [joblease.Store]. It waits for a lock on the row, but for
// that of a fence, until ctx ends.
//
// Errors: [joblease.ErrLost], a *[joblease.SetupError] if the database is not set
// up, any other if the outcome is unknown.
func (s *Store) Renew(ctx context.Context, g joblease.Grant) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	r, err := s.call(ctx, command{op: "renew", name: g.Name, sql: s.sql.renew, again: true, args: [][]byte{
		[]byte(g.Name), []byte(g.Claim.String()), integer(g.TTL.Microseconds()),
	}})
	if err == nil && r.CommandTag.RowsAffected() == 0 {
		err = lost(g)
	}
	return err
}

// Release implements [joblease.Store]. It waits for a lock on the row, but for
// that of a fence, until ctx ends.
//
// Errors: [joblease.ErrLost], a *[joblease.SetupError] if the database is not set
// up, any other if the outcome is unknown.
func (s *Store) Release(ctx context.Context, g joblease.Grant) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var finished []byte
	if g.Finished {
		finished = instant(g.Tick)
	}
	r, err := s.call(ctx, command{op: "release", name: g.Name, sql: s.sql.release, args: [][]byte{
		[]byte(g.Name), []byte(g.Claim.String()), []byte(channel), []byte(releasePrefix), finished,
	}})
	if err == nil && len(r.Rows) == 0 {
		err = lost(g)
	}
	return err
}

// List implements [joblease.Store].
func (s *Store) List(ctx context.Context) ([]joblease.Record, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	r, err := s.call(ctx, command{op: "list", sql: s.sql.list, again: true})
	if err != nil {
		return nil, err
	}
	records := make([]joblease.Record, 0, len(r.Rows))
	for _, row := range r.Rows {
		rec, err := readRecord(row)
		if err != nil {
			return nil, fmt.Errorf("joblease: list: %w", err)
		}
		records = append(records, rec)
	}
	return records, nil
}

func lost(g joblease.Grant) error {
	return &joblease.LostError{Name: g.Name, Token: g.Token, Reason: joblease.LostReplaced}
}

func integer(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// wanted is the parameter of acquire.sql that lets the planner leave out what is
// about ticks where there are none.
func wanted(t joblease.Tick) []byte {
	switch {
	case t.IsZero():
		return integer(0)
	case t.Again:
		return integer(2)
	}
	return integer(1)
}

// instant returns null for the zero time. What is finer than a microsecond is cut
// off here, since the server would round it.
func instant(t time.Time) []byte {
	if t.IsZero() {
		return nil
	}
	return t.UTC().AppendFormat(nil, "2006-01-02T15:04:05.000000Z")
}

// length returns null for no time at all.
func length(d time.Duration) []byte {
	if d == 0 {
		return nil
	}
	return integer(d.Microseconds())
}

// answer is what acquire.sql returns.
type answer struct {
	outcome                  string // granted, held, or tick: the tick cannot be claimed
	holder                   string
	claim                    joblease.ClaimID
	token, version           int64
	ttl                      time.Duration
	acquired, expires, clock time.Time
	tick                     time.Time
	done                     bool
	asked, judged            time.Time // the tick that was refused, and when
}

func readAnswer(row [][]byte) (a answer, err error) {
	d := decoder{row: row}
	a = answer{
		outcome: d.text(), holder: d.text(), claim: d.claim(), token: d.integer(), version: d.integer(),
		ttl: d.duration(), acquired: d.optional(), expires: d.optional(), clock: d.instant(),
		tick: d.optional(), done: d.boolean(), asked: d.optional(), judged: d.optional(),
	}
	return a, d.err
}

func (a answer) refusal(name string) error {
	if a.outcome == "tick" {
		return &joblease.TickError{Name: name, At: a.asked, Last: a.tick, Done: a.done, Clock: a.judged}
	}
	return &joblease.HeldError{
		Name: name, Holder: a.holder, Token: a.token, Claim: a.claim, Version: a.version, TTL: a.ttl,
		Remaining: a.expires.Sub(a.clock), Clock: a.clock,
	}
}

// readRecord reads a row of list.sql.
func readRecord(row [][]byte) (r joblease.Record, err error) {
	d := decoder{row: row}
	r = joblease.Record{
		Name: d.text(), Holder: d.text(), Claim: d.claim(), Token: d.integer(), Version: d.integer(),
		TTL: d.duration(), AcquiredAt: d.instant(), RenewedAt: d.instant(), ExpiresAt: d.instant(),
	}
	r.Remaining = r.ExpiresAt.Sub(d.instant())
	r.Tick, r.TickDone = d.optional(), d.boolean()
	return r, d.err
}
