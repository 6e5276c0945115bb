package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/joblease/joblease"
)

// onRenew lets change edit the row after each renewal; old is the row before.
func onRenew(change func(r *row, old row)) func(b *broken) {
	return func(b *broken) {
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			b.mu.Lock()
			old := b.rows[g.Name]
			b.mu.Unlock()
			err := b.Memory.Renew(ctx, g)
			if err == nil {
				b.edit(g.Name, func(r *row) { change(r, old) })
			}
			return err
		}
	}
}

// matching lets renew and release find the row by what find sets in the grant.
func matching(find func(g *joblease.Grant, r joblease.Record)) func(b *broken) {
	return func(b *broken) {
		found := func(g joblease.Grant) joblease.Grant {
			if r, ok := b.Get(g.Name); ok {
				find(&g, r)
			}
			return g
		}
		b.renew = func(ctx context.Context, g joblease.Grant) error { return b.Memory.Renew(ctx, found(g)) }
		b.release = func(ctx context.Context, g joblease.Grant) error { return b.Memory.Release(ctx, found(g)) }
	}
}

// upsert lets renew insert the row that it does not find.
func upsert(b *broken) {
	b.renew = func(ctx context.Context, g joblease.Grant) error {
		if _, ok := b.Get(g.Name); !ok {
			now := b.Now()
			b.Put(joblease.Record{
				Name: g.Name, Holder: g.Holder, Claim: g.Claim, Token: g.Token, Version: 1, TTL: g.TTL,
				AcquiredAt: g.AcquiredAt, RenewedAt: now, ExpiresAt: now.Add(g.TTL),
			})
			return nil
		}
		return b.Memory.Renew(ctx, g)
	}
}

// tooLate lets renew and release work before the expiry only.
func tooLate(b *broken) {
	over := func(g joblease.Grant) bool {
		r, _ := b.Get(g.Name)
		return r.Remaining <= 0
	}
	b.renew = func(ctx context.Context, g joblease.Grant) error {
		if over(g) {
			return joblease.ErrLost
		}
		return b.Memory.Renew(ctx, g)
	}
	b.release = func(ctx context.Context, g joblease.Grant) error {
		if over(g) {
			return joblease.ErrLost
		}
		return b.Memory.Release(ctx, g)
	}
}

var renewFaults = []fault{
	{"a renewal is acquired anew", []string{
		"a renewal extends the lease and keeps everything else",
	}, onRenew(func(r *row, _ row) { r.acquiredAt = r.renewedAt })},
	{"a renewal raises the token", []string{
		"a renewal extends the lease and keeps everything else",
	}, onRenew(func(r *row, _ row) { r.token++ })},
	{"a renewal does not extend", []string{
		"a renewal extends the lease and keeps everything else",
	}, onRenew(func(r *row, old row) { r.expiresAt = old.expiresAt })},
	{"a renewal does not raise the version", []string{
		"a renewal extends the lease and keeps everything else",
		"a renewal outdates every sighting from before it",
	}, onRenew(func(r *row, old row) { r.version = old.version })},
	{"a renewal leaves the TTL that is stored", []string{
		"a renewal with another TTL stores that TTL",
	}, onRenew(func(r *row, old row) { r.ttl = old.ttl })},
	{"a renewal changes the claim", []string{
		"a renewal whose reply was lost is sent again and loses nothing",
	}, onRenew(func(r *row, _ row) { r.claim = joblease.NewClaimID() })},
	{"renewal and release are too late after the expiry", []string{
		"a renewal after the expiry succeeds if nobody took over",
		"a release after the expiry succeeds if nobody took over",
	}, tooLate},
	{"renewal and release match by name only", []string{
		"renewal and release by a claim that was taken over are lost and write nothing",
		"renewal and release by a forged claim are lost and write nothing",
		"a second release does not touch the successor",
	}, matching(func(g *joblease.Grant, r joblease.Record) { g.Claim = r.Claim })},
	{"renewal and release match by the holder's label", []string{
		"renewal and release by a claim that was taken over are lost and write nothing",
		"two claims of the same holder label exclude each other",
	}, matching(func(g *joblease.Grant, r joblease.Record) {
		if g.Holder == r.Holder {
			g.Claim = r.Claim
		}
	})},
	{"renewal and release match by the token", []string{
		"renewal and release by a forged claim are lost and write nothing",
	}, matching(func(g *joblease.Grant, r joblease.Record) {
		if g.Token == r.Token {
			g.Claim = r.Claim
		}
	})},
	{"no claim matches a released row", []string{
		"renewal and release by no claim are lost on a released row too",
	}, func(b *broken) {
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			if r, ok := b.Get(g.Name); ok && g.Claim.IsZero() && r.Claim.IsZero() {
				return nil
			}
			return b.Memory.Renew(ctx, g)
		}
	}},
	{"a renewal inserts a row", []string{
		"renewal and release of a name that has no row are lost and no row appears",
		"renewal and release of a row that was deleted are lost and no row appears",
	}, upsert},
}

var releaseFaults = []fault{
	{"a release leaves the holder's label", []string{
		"a release empties holder and claim and keeps row and token",
	}, func(b *broken) {
		b.release = func(ctx context.Context, g joblease.Grant) error {
			err := b.Memory.Release(ctx, g)
			b.edit(g.Name, func(r *row) { r.holder = g.Holder })
			return err
		}
	}},
	{"a release of what is released succeeds", []string{
		"a second release is lost and changes nothing",
	}, func(b *broken) {
		b.release = func(ctx context.Context, g joblease.Grant) error {
			if r, ok := b.Get(g.Name); ok && r.Claim.IsZero() {
				return nil
			}
			return b.Memory.Release(ctx, g)
		}
	}},
	{"a renewal brings a released lease back", []string{
		"a renewal that comes after the release is lost and the row stays released",
	}, func(b *broken) {
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			b.edit(g.Name, func(r *row) {
				if r.claim.IsZero() {
					r.claim, r.holder = g.Claim, g.Holder
				}
			})
			return b.Memory.Renew(ctx, g)
		}
	}},
}

// slowly gives rivals the time to come in between two steps of one statement.
const slowly = 5 * time.Millisecond

// unguarded decides on a row that it has read earlier, and writes it back.
func unguarded(b *broken) {
	b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
		r, _ := b.Get(c.Name)
		time.Sleep(slowly)
		if now := b.Now(); r.Claim.IsZero() || r.Claim == c.ID || !now.Before(r.ExpiresAt) {
			b.Put(joblease.Record{
				Name: c.Name, Holder: c.Holder, Claim: c.ID, Token: r.Token + 1, Version: r.Version + 1, TTL: c.TTL,
				AcquiredAt: now, RenewedAt: now, ExpiresAt: now.Add(c.TTL),
			})
			return joblease.Grant{
				Name: c.Name, Claim: c.ID, Holder: c.Holder, Token: r.Token + 1, TTL: c.TTL,
				AcquiredAt: now, ExpiresAt: now.Add(c.TTL),
			}, nil
		}
		if r.Token > 0 {
			b.Put(r)
		}
		return joblease.Grant{}, &joblease.HeldError{
			Name: c.Name, Holder: r.Holder, Token: r.Token, Claim: r.Claim, Version: r.Version,
			TTL: r.TTL, Remaining: r.Remaining, Clock: b.Now(),
		}
	}
}

var raceFaults = []fault{
	{"an acquire is not atomic", []string{
		"of many candidates for one free name exactly one is granted",
		"of many candidates for one expired lease exactly one is granted",
	}, unguarded},
	{"a refused acquire writes back the row that it read", []string{
		"refusals do not disturb the holder's renewals",
	}, func(b *broken) {
		unguarded(b)
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			time.Sleep(slowly)
			return b.Memory.Renew(ctx, g)
		}
	}},
	{"a renewal is not atomic", []string{
		"of a renewal and a takeover of an expired lease exactly one succeeds",
	}, func(b *broken) {
		b.renew = func(_ context.Context, g joblease.Grant) error {
			r, ok := b.Get(g.Name)
			if !ok || r.Claim != g.Claim {
				return joblease.ErrLost
			}
			time.Sleep(slowly)
			b.edit(g.Name, func(r *row) { r.extend(b.now(), g.TTL) })
			return nil
		}
	}},
	{"a hundred calls at once exhaust the connections", []string{
		"two hundred leases live side by side",
	}, func(b *broken) {
		var mu sync.Mutex
		busy := 0
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			mu.Lock()
			busy++
			full := busy > 100
			mu.Unlock()
			defer func() {
				mu.Lock()
				busy--
				mu.Unlock()
			}()
			time.Sleep(slowly)
			if full {
				return joblease.Grant{}, errBroken
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
}
