package storetest

import (
	"fmt"

	"github.com/joblease/joblease"
)

// everyRule returns each rule with a sighting that fits no row.
func everyRule() []joblease.Takeover {
	var all []joblease.Takeover
	for _, rule := range []joblease.TakeoverRule{
		joblease.TakeNever, joblease.TakeExpired, joblease.TakeSightedExpired, joblease.TakeSighted,
	} {
		all = append(all, joblease.Takeover{Rule: rule, Claim: joblease.NewClaimID(), Version: 1 << 40})
	}
	return all
}

// misses returns the sightings that just miss r: another claim or another
// version, and the zero sighting.
func misses(rule joblease.TakeoverRule, r joblease.Record) []joblease.Takeover {
	return []joblease.Takeover{
		{Rule: rule},
		{Rule: rule, Claim: r.Claim, Version: r.Version - 1},
		{Rule: rule, Claim: r.Claim, Version: r.Version + 1},
		{Rule: rule, Claim: joblease.NewClaimID(), Version: r.Version},
		{Rule: rule, Version: r.Version},
	}
}

// refuses requires that under none of the conditions another claim gets name,
// and that the attempts write nothing.
func (e *env) refuses(name string, conditions ...joblease.Takeover) {
	e.Helper()
	before := e.list()
	for _, t := range conditions {
		e.held(claim(name, long, t))
		e.unchanged(before, fmt.Sprintf("a takeover that was refused (%v)", t.Rule))
	}
}

// replaces requires that under the condition another claim gets name, that all
// columns are set, and that the claim before has lost.
func (e *env) replaces(old joblease.Grant, t joblease.Takeover) {
	e.Helper()
	before := e.record(old.Name)
	c := claim(old.Name, long, t)
	c.Holder = "successor"
	g := e.granted(c)
	if g.Token != before.Token+1 {
		e.Fatalf("token %d after %d; a change of hands raises it by one", g.Token, before.Token)
	}
	if r := e.fresh(g, c); r.Version != before.Version+1 {
		e.Fatalf("version %d after %d; each write raises it by one", r.Version, before.Version)
	}
	e.lost(old)
	e.renewed(g)
}

var takeoverChecks = []check{
	{"TakeNever replaces no claim of another, expired or not", func(e *env) {
		e.granted(claim("live", long, never))
		e.granted(claim("expired", short, never))
		e.expire("expired")
		for _, name := range []string{"live", "expired"} {
			e.refuses(name, never, sighted(joblease.TakeNever, e.record(name)))
		}
	}},
	{"TakeExpired does not replace a claim that has not expired", func(e *env) {
		e.granted(claim("job", long, never))
		e.refuses("job", expired, sighted(joblease.TakeExpired, e.record("job")))
	}},
	{"TakeExpired replaces a claim that has expired, whatever was sighted", func(e *env) {
		for _, t := range []joblease.Takeover{expired, {Rule: joblease.TakeExpired, Claim: joblease.NewClaimID(), Version: 99}} {
			name := fmt.Sprint("job ", t.Version)
			g := e.granted(claim(name, short, never))
			e.expire(name)
			e.replaces(g, t)
		}
	}},
	{"TakeSightedExpired does not replace a claim that has not expired", func(e *env) {
		e.granted(claim("job", long, never))
		r := e.record("job")
		e.refuses("job", append(misses(joblease.TakeSightedExpired, r), sighted(joblease.TakeSightedExpired, r))...)
	}},
	{"TakeSightedExpired does not replace another claim or version than the one sighted", func(e *env) {
		e.granted(claim("job", short, never))
		e.refuses("job", misses(joblease.TakeSightedExpired, e.expire("job"))...)
	}},
	{"TakeSightedExpired replaces the claim sighted when it has expired", func(e *env) {
		g := e.granted(claim("job", short, never))
		r := e.record("job")
		e.expire("job")
		e.replaces(g, sighted(joblease.TakeSightedExpired, r))
	}},
	{"TakeSighted does not replace another claim or version than the one sighted", func(e *env) {
		e.granted(claim("live", long, never))
		e.granted(claim("expired", short, never))
		e.expire("expired")
		for _, name := range []string{"live", "expired"} {
			e.refuses(name, misses(joblease.TakeSighted, e.record(name))...)
		}
	}},
	{"TakeSighted replaces the claim sighted, expired or not", func(e *env) {
		g := e.granted(claim("live", long, never))
		e.replaces(g, sighted(joblease.TakeSighted, e.record("live")))
		g = e.granted(claim("expired", short, never))
		e.replaces(g, sighted(joblease.TakeSighted, e.expire("expired")))
	}},
	{"a renewal outdates every sighting from before it", func(e *env) {
		g := e.granted(claim("job", short, never))
		r := e.record("job")
		e.renewed(g)
		e.expire("job")
		e.refuses("job", sighted(joblease.TakeSighted, r), sighted(joblease.TakeSightedExpired, r))
	}},
	{"one sighting is good for one takeover", func(e *env) {
		g := e.granted(claim("job", short, never))
		r := e.expire("job")
		e.replaces(g, sighted(joblease.TakeSightedExpired, r))
		e.refuses("job", sighted(joblease.TakeSighted, r), sighted(joblease.TakeSightedExpired, r))
	}},
	{"a released row and an absent one are taken under every rule", func(e *env) {
		for _, t := range everyRule() {
			g := e.granted(claim(t.Rule.String(), long, t))
			e.released(g)
			if again := e.granted(claim(t.Rule.String(), long, t)); again.Token != g.Token+1 {
				e.Fatalf("token %d after %d", again.Token, g.Token)
			}
		}
	}},
}
