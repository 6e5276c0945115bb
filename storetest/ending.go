package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/joblease/joblease"
)

// ends are contexts that end after d, in the two ways in which contexts end.
var ends = []struct {
	name string
	in   func(d time.Duration) (context.Context, context.CancelFunc)
}{
	{"cancelled", func(d time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		if d == 0 {
			cancel()
			return ctx, cancel
		}
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}},
	{"timed out", func(d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), d)
	}},
}

// soon runs call on a context that ends after d, and requires that it returns
// an error soon after that, and one that decides nothing.
func (e *env) soon(what string, in func(time.Duration) (context.Context, context.CancelFunc),
	d time.Duration, call func(context.Context) error,
) {
	e.Helper()
	ctx, cancel := in(d)
	defer cancel()
	sent := time.Now()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		e.unknown(err, what)
		if took := time.Since(sent); took > d+e.promptly {
			e.Fatalf("%s: returned %v after its context ended", what, took-d)
		}
	case <-time.After(d + e.patience):
		e.Fatalf("%s: did not return within %v of its context's end", what, e.patience)
	}
}

var endingChecks = []check{
	{"a call whose context has ended is an error at once and writes nothing", func(e *env) {
		g := e.granted(claim("held", long, never))
		e.released(e.granted(claim("released", long, never)))
		before := e.list()
		for _, end := range ends {
			for what, call := range map[string]func(context.Context) error{
				"acquire of an absent row": func(ctx context.Context) error {
					_, err := e.s.Acquire(ctx, claim("absent", long, never))
					return err
				},
				"acquire of a released row": func(ctx context.Context) error {
					_, err := e.s.Acquire(ctx, claim("released", long, never))
					return err
				},
				"acquire of a held row": func(ctx context.Context) error {
					_, err := e.s.Acquire(ctx, claim("held", long, never))
					return err
				},
				"renew":   func(ctx context.Context) error { return e.s.Renew(ctx, g) },
				"release": func(ctx context.Context) error { return e.s.Release(ctx, g) },
				"list": func(ctx context.Context) error {
					_, err := e.s.List(ctx)
					return err
				},
			} {
				what = fmt.Sprintf("%s, context %s", what, end.name)
				e.soon(what, end.in, 0, call)
				e.unchanged(before, what)
			}
		}
	}},
	{"a call that waits for a locked row returns soon after its context has ended", func(e *env) {
		e.needs("Lock", e.b.Lock != nil)
		g := e.granted(claim("job", long, never))
		for _, end := range ends {
			unlock := e.b.Lock("job")
			e.soon("renew, context "+end.name, end.in, 2*short, func(ctx context.Context) error {
				return e.s.Renew(ctx, g)
			})
			unlock()
			e.renewed(g)
		}
		unlock := e.b.Lock("job")
		e.soon("release", ends[0].in, 2*short, func(ctx context.Context) error {
			return e.s.Release(ctx, g)
		})
		unlock()
		// The release may have come through, now or later, and nothing else may.
		if err := e.release(e.s, g); err != nil && !errors.Is(err, joblease.ErrLost) {
			e.Fatalf("release again: %v", err)
		}
		if r := e.record("job"); r.Held() || r.Token != g.Token {
			e.Fatalf("after the release: %s", columns(r))
		}
	}},
	{"an acquire whose reply was lost gets its own grant at the next try", func(e *env) {
		claims := map[string]joblease.Claim{}
		for i := range 40 {
			// From no time at all to more than a round trip takes: wherever the
			// context ends, the next try must win.
			c := claim(fmt.Sprint("job ", i), long, expired)
			claims[c.Name] = c
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*50*time.Microsecond)
			_, err := e.s.Acquire(ctx, c)
			cancel()
			if err != nil {
				e.unknown(err, "an acquire whose context ended")
			}
			e.await("the claim gets its grant", func() bool {
				g, err := e.acquire(e.s, c)
				if err != nil {
					// The first try may still be under way, and lock the row.
					if h := e.isHeld(err, c.Name); h.Claim != c.ID && !h.Claim.IsZero() {
						e.Fatalf("refused for claim %v; there is none but %v", h.Claim, c.ID)
					}
					return false
				}
				if g.Token != 1 {
					e.Fatalf("token %d for one acquisition", g.Token)
				}
				return true
			})
		}
		for _, r := range e.list() {
			if r.Token != 1 || r.Claim != claims[r.Name].ID {
				e.Fatalf("%s; want token 1, claim %v", columns(r), claims[r.Name].ID)
			}
		}
	}},
}
