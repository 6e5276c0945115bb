package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/joblease/joblease"
)

// outcome is what one contender got.
type outcome struct {
	grant joblease.Grant
	err   error
}

// together calls fn n times at once and returns the outcomes in order.
func together(n int, fn func(i int) outcome) []outcome {
	out := make([]outcome, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			out[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return out
}

// handles opens n handles.
func (e *env) handles(n int) []joblease.Store {
	all := []joblease.Store{e.s}
	for len(all) < n {
		all = append(all, e.b.Open())
	}
	return all
}

// contend lets 64 claims ask for name at once, over four handles, and returns
// the grant of the one that must have won.
func (e *env) contend(name string, t joblease.Takeover) joblease.Grant {
	e.Helper()
	stores := e.handles(4)
	var winner joblease.Grant
	for _, o := range together(64, func(i int) outcome {
		g, err := e.acquire(stores[i%len(stores)], claim(name, long, t))
		return outcome{g, err}
	}) {
		switch {
		case o.err != nil:
			e.isHeld(o.err, name)
		case !winner.Claim.IsZero():
			e.Fatalf("%q was granted twice, with tokens %d and %d", name, winner.Token, o.grant.Token)
		default:
			winner = o.grant
		}
	}
	if winner.Claim.IsZero() {
		e.Fatalf("nobody was granted %q", name)
	}
	if r := e.record(name); r.Claim != winner.Claim || r.Token != winner.Token {
		e.Fatalf("the winner has claim %v, token %d; the row is %s", winner.Claim, winner.Token, columns(r))
	}
	return winner
}

var raceChecks = []check{
	{"of many candidates for one free name exactly one is granted", func(e *env) {
		for token := int64(1); token <= 8; token++ {
			g := e.contend("job", expired)
			if g.Token != token {
				e.Fatalf("token %d in round %d", g.Token, token)
			}
			e.released(g)
		}
	}},
	{"of many candidates for one expired lease exactly one is granted", func(e *env) {
		for i, rule := range []joblease.TakeoverRule{
			joblease.TakeExpired, joblease.TakeSightedExpired, joblease.TakeSighted,
		} {
			name := fmt.Sprint("job ", i)
			old := e.granted(claim(name, short, never))
			if g := e.contend(name, sighted(rule, e.expire(name))); g.Token != old.Token+1 {
				e.Fatalf("%v: token %d after %d", rule, g.Token, old.Token)
			}
		}
	}},
	{"of a renewal and a takeover of an expired lease exactly one succeeds", func(e *env) {
		const leases = 16
		stores := e.handles(2)
		var grants []joblease.Grant
		for i := range leases {
			grants = append(grants, e.granted(claim(fmt.Sprint("job ", i), short, never)))
		}
		for n, g := range grants {
			e.expire(g.Name)
			g.TTL = long     // so that the takeover does not find the renewal expired
			renewer := n % 2 // so that neither always comes first
			out := together(2, func(i int) outcome {
				if i == renewer {
					return outcome{err: e.renew(stores[0], g)}
				}
				next, err := e.acquire(stores[1], claim(g.Name, long, expired))
				return outcome{next, err}
			})
			renewal, takeover := out[renewer].err, out[1-renewer].err
			want := g
			switch {
			case renewal == nil && errors.Is(takeover, joblease.ErrHeld):
			case errors.Is(renewal, joblease.ErrLost) && takeover == nil:
				want = out[1-renewer].grant
			default:
				e.Fatalf("the renewal says %v and the takeover %v", renewal, takeover)
			}
			if r := e.record(g.Name); r.Claim != want.Claim || r.Token != want.Token {
				e.Fatalf("the row is %s; want claim %v, token %d", columns(r), want.Claim, want.Token)
			}
		}
	}},
	{"one claim sent many times at once is one change of hands", func(e *env) {
		stores := e.handles(4)
		c := claim("job", long, expired)
		granted := 0
		for _, o := range together(16, func(i int) outcome {
			g, err := e.acquire(stores[i%len(stores)], c)
			return outcome{g, err}
		}) {
			if o.err != nil {
				// It may find the row locked by itself, but never a rival.
				if h := e.isHeld(o.err, c.Name); h.Claim != c.ID && !h.Claim.IsZero() {
					e.Fatalf("refused for claim %v; there is none but %v", h.Claim, c.ID)
				}
				continue
			}
			granted++
			if o.grant.Token != 1 || o.grant.Claim != c.ID {
				e.Fatalf("claim %v got token %d", o.grant.Claim, o.grant.Token)
			}
		}
		if r := e.record(c.Name); granted == 0 || r.Token != 1 || r.Claim != c.ID {
			e.Fatalf("%d grants, and the row is %s", granted, columns(r))
		}
	}},
	{"refusals do not disturb the holder's renewals", func(e *env) {
		const renewals = 20
		stores := e.handles(4)
		g := e.granted(claim("job", long, never))
		before := e.record("job")
		for i, o := range together(32, func(i int) outcome {
			if i == 0 {
				for range renewals {
					if err := e.renew(stores[0], g); err != nil {
						return outcome{err: err}
					}
				}
				return outcome{}
			}
			for range 5 {
				got, err := e.acquire(stores[i%len(stores)], claim("job", long, expired))
				if !errors.Is(err, joblease.ErrHeld) {
					return outcome{err: fmt.Errorf("acquire: token %d, %w; want ErrHeld", got.Token, err)}
				}
			}
			return outcome{}
		}) {
			if o.err != nil {
				e.Fatalf("contender %d: %v", i, o.err)
			}
		}
		if r := e.record("job"); r.Claim != g.Claim || r.Token != g.Token || r.Version != before.Version+renewals {
			e.Fatalf("after %d renewals the row went\nfrom %s\nto   %s", renewals, columns(before), columns(r))
		}
	}},
	{"two hundred leases live side by side", func(e *env) {
		stores := e.handles(2)
		for i, o := range together(200, func(i int) outcome {
			s, name := stores[i%len(stores)], fmt.Sprint("job ", i)
			var last joblease.Grant
			for range 2 {
				g, err := e.acquire(s, claim(name, long, never))
				if err != nil {
					return outcome{err: err}
				}
				for range 2 {
					if err := e.renew(s, g); err != nil {
						return outcome{err: err}
					}
				}
				if err := e.release(s, g); err != nil {
					return outcome{err: err}
				}
				last = g
			}
			return outcome{grant: last}
		}) {
			if o.err != nil || o.grant.Token != 2 {
				e.Fatalf("lease %d: token %d, %v; want token 2", i, o.grant.Token, o.err)
			}
		}
		for _, r := range e.list() {
			if r.Token != 2 || r.Held() {
				e.Fatalf("%s; want it released with token 2", columns(r))
			}
		}
	}},
}
