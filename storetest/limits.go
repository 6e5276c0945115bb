package storetest

import (
	"math"
	"time"

	"github.com/joblease/joblease"
)

// ttls are odd in one way or another. All but the last are whole microseconds.
var ttls = []time.Duration{
	time.Second + time.Microsecond,
	999_999 * time.Microsecond,
	1_234_567 * time.Microsecond,
	24*time.Hour + time.Microsecond,
	// Beyond 2038, where 32-bit timestamps end, and with more digits than a
	// 32-bit count of anything holds.
	100*365*24*time.Hour + 123_457*time.Microsecond,
	333_333_333 * time.Nanosecond,
}

var limitChecks = []check{
	{"a token at its maximum is an error and never wraps", func(e *env) {
		e.needs("SetToken", e.b.SetToken != nil)
		e.released(e.granted(claim("released", long, never)))
		e.granted(claim("expired", short, never))
		e.granted(claim("live", long, never))
		e.expire("expired")
		for _, r := range e.list() {
			e.b.SetToken(r.Name, math.MaxInt64)
		}
		before := e.list()
		for _, r := range before {
			if r.Token != math.MaxInt64 {
				e.Fatalf("after SetToken(%d): %s", int64(math.MaxInt64), columns(r))
			}
			rule := joblease.TakeExpired
			if r.Name == "live" {
				rule = joblease.TakeSighted
			}
			_, err := e.acquire(e.s, claim(r.Name, long, sighted(rule, r)))
			e.unknown(err, "acquire of the row "+r.Name+" with the token at its maximum")
			e.unchanged(before, "an acquire with the token at its maximum")
		}
	}},
	{"the last token is granted, renewed, sent again and released like any other", func(e *env) {
		e.needs("SetToken", e.b.SetToken != nil)
		e.released(e.granted(claim("job", long, never)))
		e.b.SetToken("job", math.MaxInt64-1)
		c := claim("job", long, never)
		g := e.granted(c)
		if g.Token != math.MaxInt64 {
			e.Fatalf("token %d; want %d", g.Token, int64(math.MaxInt64))
		}
		e.renewed(g)
		if again := e.granted(c); again.Token != g.Token {
			e.Fatalf("token %d; the claim has %d", again.Token, g.Token)
		}
		e.released(g)
		if r := e.record("job"); r.Token != math.MaxInt64 || r.Held() {
			e.Fatalf("after the release: %s", columns(r))
		}
	}},
	{"a TTL is kept to the microsecond, up to a hundred years", func(e *env) {
		for _, ttl := range ttls {
			name := ttl.String()
			c := claim(name, ttl, never)
			g := e.granted(c)
			e.fresh(g, c)
			e.renewed(g)
			e.lasts(e.record(name), ttl)
			if h := e.held(claim(name, long, never)); !sameTTL(h.TTL, ttl) {
				e.Fatalf("the refusal tells a TTL of %v; asked for was %v", h.TTL, ttl)
			}
		}
	}},
}
