package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/joblease/joblease"
)

// Acquire implements [joblease.Store].
//
// A refusal is a read: it takes no write lock, and in WAL mode it does not wait
// for one either. Another connection's write transaction locks all rows; an
// acquire that could win waits for its end, as long as ctx allows.
//
// Errors: a *[joblease.TickError] if the claim's tick cannot be claimed, a
// *[joblease.HeldError] if the lease is held, a *[joblease.ConfigError] for a name
// or a tick that cannot be kept, a *[joblease.SetupError] if the database is not
// set up, any other if the outcome is unknown.
func (s *SQLite) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	err := errors.Join(joblease.CheckName(c.Name), joblease.CheckTick(c.Tick))
	if err == nil && (c.ID.IsZero() || c.TTL <= 0) {
		err = errors.New("a claim needs an ID and a positive TTL")
	}
	var g joblease.Grant
	if err == nil {
		g, err = call(ctx, s, func(ctx context.Context, conn *sql.Conn) (joblease.Grant, error) {
			return s.acquire(ctx, conn, c)
		})
	}
	return g, failed("acquire", c.Name, err)
}

func (s *SQLite) acquire(ctx context.Context, conn *sql.Conn, c joblease.Claim) (joblease.Grant, error) {
	for {
		if err := s.look(ctx, conn, c); err != nil {
			return joblease.Grant{}, err
		}
		sent := time.Now()
		g, err := s.take(ctx, conn, c)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			// A rival was faster. The next look tells who.
		case err != nil:
			return joblease.Grant{}, err
		case time.Since(sent) < c.TTL-clockTick:
			return g, nil
		default:
			// The commit took so long that the lease may have expired since its
			// clock was read. If it has not been taken over, the claim holds it
			// and this round extends it.
		}
		if err := ctx.Err(); err != nil {
			return joblease.Grant{}, err
		}
	}
}

// clockTick is how far SQLite's clock may be behind the machine's.
const clockTick = time.Millisecond

// look returns nil if c may take the row, and else why not.
func (s *SQLite) look(ctx context.Context, conn *sql.Conn, c joblease.Claim) error {
	h := joblease.HeldError{Name: c.Name}
	t := joblease.TickError{Name: c.Name}
	var verdict string
	var claim []byte
	var ttl, expires, now int64
	var last, asked sql.NullInt64
	err := conn.QueryRowContext(ctx, s.query["look"], condition(c)...).
		Scan(&verdict, &h.Holder, &claim, &h.Token, &h.Version, &ttl, &expires, &now, &last, &t.Done, &asked)
	switch {
	case err != nil:
		return err
	case verdict == "tick":
		t.At, t.Last, t.Clock = optional(asked), optional(last), instant(now)
		return &t
	case verdict == "held":
		copy(h.Claim[:], claim)
		h.TTL, h.Remaining, h.Clock = micros(ttl), micros(expires-now), instant(now)
		return &h
	}
	return nil
}

// take returns sql.ErrNoRows if c may not take the row.
func (s *SQLite) take(ctx context.Context, conn *sql.Conn, c joblease.Claim) (joblease.Grant, error) {
	g := joblease.Grant{Name: c.Name, Claim: c.ID, Holder: c.Holder, TTL: c.TTL.Truncate(time.Microsecond)}
	args := append(condition(c), sql.Named("holder", c.Holder), sql.Named("ttl", c.TTL.Microseconds()))
	found := false
	err := each(ctx, conn, s.query["take"], args, func(row *sql.Rows) error {
		found = true
		var acquired, expires int64
		var tick sql.NullInt64
		err := row.Scan(&g.Token, &acquired, &expires, &tick)
		g.AcquiredAt, g.ExpiresAt = instant(acquired), instant(expires)
		if !c.Tick.IsZero() {
			g.Tick = optional(tick)
		}
		return err
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return g, err
}

// condition returns the arguments that look.sql and take.sql share.
func condition(c joblease.Claim) []any {
	slot := sql.NullInt64{Int64: c.Tick.Slot.Microseconds(), Valid: c.Tick.Slot != 0}
	return []any{
		sql.Named("name", c.Name), sql.Named("claim", c.ID[:]), sql.Named("rule", int64(c.Takeover.Rule)),
		sql.Named("seen_claim", c.Takeover.Claim[:]), sql.Named("seen_version", c.Takeover.Version),
		sql.Named("tick", stored(c.Tick.At)), sql.Named("slot", slot), sql.Named("again", c.Tick.Again),
	}
}
