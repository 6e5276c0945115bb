package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/joblease/joblease"
)

// onChange lets change edit the row after each grant that changed hands; old is
// the row before.
func onChange(change func(r *row, old row)) func(b *broken) {
	return onGrant(func(r *row, old row) {
		if r.token != old.token {
			change(r, old)
		}
	})
}

// onRepeat is onChange for the grants of a claim that had the lease already.
func onRepeat(change func(r *row, old row)) func(b *broken) {
	return onGrant(func(r *row, old row) {
		if r.token == old.token {
			change(r, old)
		}
	})
}

func onGrant(change func(r *row, old row)) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			b.mu.Lock()
			old := b.rows[c.Name]
			b.mu.Unlock()
			g, err := b.Memory.Acquire(ctx, c)
			if err == nil {
				b.edit(c.Name, func(r *row) {
					change(r, old)
					g.Token, g.AcquiredAt, g.ExpiresAt = r.token, r.acquiredAt, r.expiresAt
					if !c.Tick.IsZero() {
						g.Tick = r.tick
					}
				})
			}
			return g, err
		}
	}
}

// asking lets change edit each claim before it is sent; r is the row.
func asking(change func(c *joblease.Claim, r joblease.Record)) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			r, _ := b.Get(c.Name)
			change(&c, r)
			return b.Memory.Acquire(ctx, c)
		}
	}
}

// remembering lets what was ever granted count as granted still: change edits
// the row when a claim is sent that has once had it.
func remembering(change func(r *row, once joblease.Grant)) func(b *broken) {
	var mu sync.Mutex
	once := map[joblease.ClaimID]joblease.Grant{}
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			mu.Lock()
			defer mu.Unlock()
			if g, ok := once[c.ID]; ok {
				b.edit(c.Name, func(r *row) { change(r, g) })
			}
			g, err := b.Memory.Acquire(ctx, c)
			if err == nil {
				once[c.ID] = g
			}
			return g, err
		}
	}
}

var acquireFaults = []fault{
	{"a release deletes the row", []string{
		"a free name is granted with token 1 and each change of hands raises it by one",
		"a release empties holder and claim and keeps row and token",
	}, func(b *broken) {
		b.release = func(ctx context.Context, g joblease.Grant) error {
			err := b.Memory.Release(ctx, g)
			if err == nil {
				b.Delete(g.Name)
			}
			return err
		}
	}},
	{"a change of hands resets the token", []string{
		"a free name is granted with token 1 and each change of hands raises it by one",
	}, onChange(func(r *row, _ row) { r.token = 1 })},
	{"a change of hands raises the token by two", []string{
		"a free name is granted with token 1 and each change of hands raises it by one",
	}, onChange(func(r *row, old row) { r.token = old.token + 2 })},
	{"a change of hands leaves the label of the holder before", []string{
		"absent, released and expired rows are taken alike, all columns set",
	}, onChange(func(r *row, old row) { r.holder = old.holder })},
	{"a change of hands leaves the instant of the acquisition before", []string{
		"absent, released and expired rows are taken alike, all columns set",
	}, onChange(func(r *row, old row) { r.acquiredAt = old.acquiredAt })},
	{"a change of hands sets an expiry of half the TTL", []string{
		"who takes an absent, a released or an expired row keeps it for a full TTL",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			g, err := b.Memory.Acquire(ctx, c)
			if err == nil {
				b.edit(c.Name, func(r *row) { r.expiresAt = r.renewedAt.Add(c.TTL / 2) })
			}
			return g, err
		}
	}},
	{"a refused acquire overwrites the expiry", []string{
		"a candidate's shorter TTL does not shorten the holder's lease",
		"a hundred refusals write nothing",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			g, err := b.Memory.Acquire(ctx, c)
			if errors.Is(err, joblease.ErrHeld) {
				b.edit(c.Name, func(r *row) { r.expiresAt = b.now().Add(c.TTL) })
			}
			return g, err
		}
	}},
	{"an acquire tells its own claim by the holder's label", []string{
		"two claims of the same holder label exclude each other",
	}, asking(func(c *joblease.Claim, r joblease.Record) {
		if c.Holder == r.Holder {
			c.ID = r.Claim
		}
	})},
	{"a claim that is sent again raises the token", []string{
		"a claim that is sent again gets its own grant back, extended",
		"one claim sent many times at once is one change of hands",
	}, onRepeat(func(r *row, _ row) { r.token++ })},
	{"a claim that is sent again is acquired anew", []string{
		"a claim that is sent again gets its own grant back, extended",
	}, onRepeat(func(r *row, _ row) { r.acquiredAt = r.renewedAt })},
	{"a claim that is sent again is not extended", []string{
		"a claim that is sent again gets its own grant back, extended",
	}, onRepeat(func(r *row, old row) { r.expiresAt = old.expiresAt })},
	{"a claim that is sent again keeps the TTL that is stored", []string{
		"a claim that is sent again with another TTL has that TTL from then on",
	}, onRepeat(func(r *row, old row) { r.ttl = old.ttl })},
	{"a claim that is sent again is refused", []string{
		"a claim that is sent again gets its own grant back, extended",
		"an acquire whose reply was lost gets its own grant at the next try",
	}, asking(func(c *joblease.Claim, r joblease.Record) {
		if c.ID == r.Claim {
			c.ID[0]++
		}
	})},
	{"a claim that is sent again after its expiry is a change of hands", []string{
		"a claim that is sent again after its expiry keeps its token if nobody took over",
	}, onRepeat(func(r *row, old row) {
		if !r.renewedAt.Before(old.expiresAt) {
			r.token++
		}
	})},
	{"a claim that once had the lease has it still", []string{
		"a claim that is sent again after a takeover is refused",
	}, remembering(func(r *row, once joblease.Grant) { r.claim = once.Claim })},
	{"a claim that once had the lease gets its token back", []string{
		"a claim that is sent again after its release is a new change of hands",
	}, remembering(func(r *row, once joblease.Grant) { r.claim, r.token = once.Claim, once.Token })},
}

// rule lets the rule from act as what to returns, given the row.
func rule(from joblease.TakeoverRule, to func(t joblease.Takeover, r joblease.Record) joblease.Takeover) func(b *broken) {
	return asking(func(c *joblease.Claim, r joblease.Record) {
		if c.Takeover.Rule == from && !r.Claim.IsZero() {
			c.Takeover = to(c.Takeover, r)
		}
	})
}

// acts returns a Takeover with another rule and the same sighting.
func acts(as joblease.TakeoverRule) func(joblease.Takeover, joblease.Record) joblease.Takeover {
	return func(t joblease.Takeover, _ joblease.Record) joblease.Takeover {
		t.Rule = as
		return t
	}
}

// blind lets the rule not compare the columns that see copies from the row.
func blind(of joblease.TakeoverRule, see func(t *joblease.Takeover, r joblease.Record)) func(b *broken) {
	return rule(of, func(t joblease.Takeover, r joblease.Record) joblease.Takeover {
		see(&t, r)
		return t
	})
}

func seeClaim(t *joblease.Takeover, r joblease.Record)   { t.Claim = r.Claim }
func seeVersion(t *joblease.Takeover, r joblease.Record) { t.Version = r.Version }
func seeBoth(t *joblease.Takeover, r joblease.Record)    { t.Claim, t.Version = r.Claim, r.Version }

var takeoverFaults = []fault{
	{"TakeNever replaces an expired claim", []string{
		"TakeNever replaces no claim of another, expired or not",
	}, rule(joblease.TakeNever, acts(joblease.TakeExpired))},
	{"TakeExpired replaces a live claim", []string{
		"TakeExpired does not replace a claim that has not expired",
		"two claims of the same holder label exclude each other",
	}, func(b *broken) {
		blind(joblease.TakeExpired, func(t *joblease.Takeover, r joblease.Record) {
			t.Rule, t.Claim, t.Version = joblease.TakeSighted, r.Claim, r.Version
		})(b)
	}},
	{"TakeExpired wants a sighting", []string{
		"TakeExpired replaces a claim that has expired, whatever was sighted",
	}, rule(joblease.TakeExpired, acts(joblease.TakeSightedExpired))},
	{"TakeSightedExpired does not look at the expiry", []string{
		"TakeSightedExpired does not replace a claim that has not expired",
	}, rule(joblease.TakeSightedExpired, acts(joblease.TakeSighted))},
	{"TakeSightedExpired does not look at the claim", []string{
		"TakeSightedExpired does not replace another claim or version than the one sighted",
	}, blind(joblease.TakeSightedExpired, seeClaim)},
	{"TakeSightedExpired does not look at the version", []string{
		"TakeSightedExpired does not replace another claim or version than the one sighted",
		"a renewal outdates every sighting from before it",
	}, blind(joblease.TakeSightedExpired, seeVersion)},
	{"TakeSightedExpired replaces nothing", []string{
		"TakeSightedExpired replaces the claim sighted when it has expired",
	}, rule(joblease.TakeSightedExpired, acts(joblease.TakeNever))},
	{"TakeSighted does not look at the claim", []string{
		"TakeSighted does not replace another claim or version than the one sighted",
	}, blind(joblease.TakeSighted, seeClaim)},
	{"TakeSighted does not look at the version", []string{
		"TakeSighted does not replace another claim or version than the one sighted",
		"a renewal outdates every sighting from before it",
	}, blind(joblease.TakeSighted, seeVersion)},
	{"TakeSighted does not look at the sighting", []string{
		"one sighting is good for one takeover",
	}, blind(joblease.TakeSighted, seeBoth)},
	{"TakeSighted wants the expiry too", []string{
		"TakeSighted replaces the claim sighted, expired or not",
	}, rule(joblease.TakeSighted, acts(joblease.TakeSightedExpired))},
	{"a released row is taken by its sighting only", []string{
		"a released row and an absent one are taken under every rule",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if r, ok := b.Get(c.Name); ok && r.Claim.IsZero() && c.Takeover.Rule >= joblease.TakeSightedExpired &&
				c.Takeover.Version != r.Version {
				return joblease.Grant{}, &joblease.HeldError{Name: c.Name, Version: r.Version, Clock: b.Now()}
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
}

var refusalFaults = []fault{
	{"a refusal does not tell the clock", []string{
		"a refusal tells holder, token, claim, version, TTL, remaining time and clock",
	}, refusing(func(_ *broken, h *joblease.HeldError) { h.Clock = time.Time{} })},
	{"a refusal tells the clock of another machine", []string{
		"a refusal tells holder, token, claim, version, TTL, remaining time and clock",
	}, refusing(func(_ *broken, h *joblease.HeldError) { h.Clock = h.Clock.Add(time.Second) })},
	{"a refusal tells the candidate's TTL", []string{
		"a refusal tells holder, token, claim, version, TTL, remaining time and clock",
	}, refusing(func(_ *broken, h *joblease.HeldError) { h.TTL = short })},
	{"a refusal does not tell the version", []string{
		"a refusal tells holder, token, claim, version, TTL, remaining time and clock",
	}, refusing(func(_ *broken, h *joblease.HeldError) { h.Version = 0 })},
	{"a refusal never tells less than a millisecond", []string{
		"a refusal tells of an expired lease that nothing remains",
	}, refusing(func(_ *broken, h *joblease.HeldError) { h.Remaining = max(h.Remaining, time.Millisecond) })},
	{"a refusal tells the instant of the last write for the clock", []string{
		"from one refusal to the next the clock goes on by what the remaining time loses",
	}, refusing(func(_ *broken, h *joblease.HeldError) { h.Clock = h.Clock.Add(h.Remaining - h.TTL) })},
	{"a refusal counts attempts in the version", []string{
		"a hundred refusals write nothing",
	}, refusing(func(b *broken, h *joblease.HeldError) { b.edit(h.Name, func(r *row) { r.version++ }) })},
}

// refusing lets change edit each refusal.
func refusing(change func(b *broken, h *joblease.HeldError)) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			g, err := b.Memory.Acquire(ctx, c)
			var h *joblease.HeldError
			if errors.As(err, &h) {
				change(b, h)
			}
			return g, err
		}
	}
}
