package storetest

import (
	"time"

	"github.com/joblease/joblease"
)

var renewChecks = []check{
	{"a renewal extends the lease and keeps everything else", func(e *env) {
		g := e.granted(claim("job", long, never))
		for range 3 {
			before := e.record("job")
			e.pass("job", 10*time.Millisecond)
			e.renewed(g)
			r := e.record("job")
			e.lasts(r, long)
			if !r.ExpiresAt.After(before.ExpiresAt) || !r.RenewedAt.After(before.RenewedAt) {
				e.Fatalf("a renewal moved the row\nfrom %s\nto   %s", columns(before), columns(r))
			}
			if r.Version != before.Version+1 {
				e.Fatalf("version %d after %d; each write raises it by one", r.Version, before.Version)
			}
			kept := before
			kept.Version, kept.RenewedAt, kept.ExpiresAt = r.Version, r.RenewedAt, r.ExpiresAt
			if columns(kept) != columns(r) {
				e.Fatalf("a renewal changed the row\nfrom %s\nto   %s", columns(before), columns(r))
			}
		}
	}},
	{"a renewal with another TTL stores that TTL", func(e *env) {
		g := e.granted(claim("job", short, never))
		g.TTL = long
		e.renewed(g)
		e.lasts(e.record("job"), long)
		// A standby waits by what it is told of the TTL.
		if h := e.held(claim("job", long, expired)); !sameTTL(h.TTL, long) {
			e.Fatalf("the refusal tells a TTL of %v; renewed was for %v", h.TTL, long)
		}
	}},
	{"a renewal whose reply was lost is sent again and loses nothing", func(e *env) {
		g := e.granted(claim("job", long, never))
		e.renewed(g)
		e.renewed(g)
		if r := e.record("job"); r.Token != g.Token || !r.Held() {
			e.Fatalf("after two renewals of token %d: %s", g.Token, columns(r))
		}
	}},
	{"a renewal after the expiry succeeds if nobody took over", func(e *env) {
		g := e.granted(claim("job", short, never))
		e.expire("job")
		g.TTL = long
		e.renewed(g)
		e.lasts(e.record("job"), long)
		e.held(claim("job", long, expired))
	}},
	{"renewal and release by a claim that was taken over are lost and write nothing", func(e *env) {
		g := e.granted(claim("job", short, never))
		e.expire("job")
		next := e.granted(claim("job", long, expired))
		e.lost(g)
		e.renewed(next)
		e.lost(g)
	}},
	{"renewal and release by a forged claim are lost and write nothing", func(e *env) {
		g := e.granted(claim("job", long, never))
		for _, id := range []joblease.ClaimID{joblease.NewClaimID(), {}} {
			forged := g
			forged.Claim = id
			e.lost(forged)
		}
		e.renewed(g)
	}},
	{"renewal and release by no claim are lost on a released row too", func(e *env) {
		g := e.granted(claim("job", long, never))
		e.released(g)
		g.Claim = joblease.ClaimID{}
		e.lost(g)
	}},
	{"renewal and release of a name that has no row are lost and no row appears", func(e *env) {
		g := e.granted(claim("job", long, never))
		g.Name = "other"
		e.lost(g)
	}},
	{"renewal and release of a row that was deleted are lost and no row appears", func(e *env) {
		e.needs("Delete", e.b.Delete != nil)
		g := e.granted(claim("job", long, never))
		e.b.Delete("job")
		e.lost(g)
		if rows := e.list(); len(rows) != 0 {
			e.Fatalf("%d rows after the only one was deleted", len(rows))
		}
		if g := e.granted(claim("job", long, never)); g.Token != 1 {
			e.Fatalf("token %d; that of a new row is 1", g.Token)
		}
	}},
}

var releaseChecks = []check{
	{"a release empties holder and claim and keeps row and token", func(e *env) {
		g := e.granted(claim("job", long, never))
		before := e.record("job")
		e.released(g)
		r := e.record("job")
		if r.Holder != "" || !r.Claim.IsZero() || r.Held() || r.Remaining > 0 {
			e.Fatalf("a released row still has a holder, or time left (%v): %s", r.Remaining, columns(r))
		}
		if r.Token != before.Token || r.Version != before.Version+1 {
			e.Fatalf("a release changed the row\nfrom %s\nto   %s", columns(before), columns(r))
		}
	}},
	{"a second release is lost and changes nothing", func(e *env) {
		g := e.granted(claim("job", long, never))
		e.released(g)
		e.lost(g)
	}},
	{"a second release does not touch the successor", func(e *env) {
		g := e.granted(claim("job", long, never))
		e.released(g)
		next := e.granted(claim("job", long, never))
		e.lost(g)
		e.renewed(next)
	}},
	{"a renewal that comes after the release is lost and the row stays released", func(e *env) {
		g := e.granted(claim("job", long, never))
		e.released(g)
		e.lost(g)
		if r := e.record("job"); r.Held() || !r.Claim.IsZero() {
			e.Fatalf("it is held again: %s", columns(r))
		}
		e.granted(claim("job", long, never))
	}},
	{"a release after the expiry succeeds if nobody took over", func(e *env) {
		g := e.granted(claim("job", short, never))
		e.expire("job")
		e.released(g)
		if next := e.granted(claim("job", long, never)); next.Token != g.Token+1 {
			e.Fatalf("token %d after %d", next.Token, g.Token)
		}
	}},
}
