package storetest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/joblease/joblease"
)

// waitFree waits until no session locks the row of name.
func (b *broken) waitFree(ctx context.Context, name string) error {
	if err := b.lockUnlocked(ctx, name); err != nil {
		return err
	}
	b.mu.Unlock()
	return nil
}

// anyLocked returns the name of a row that some session locks.
func (b *broken) anyLocked() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.locks {
		return name
	}
	return ""
}

var lockFaults = []fault{
	{"an acquire waits for a locked row", []string{
		"a locked row is refused at once, whatever stands in it, and the refusal tells it",
	}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if err := b.waitFree(ctx, c.Name); err != nil {
				return joblease.Grant{}, err
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
	{"a refusal of a locked row tells nothing", []string{
		"a locked row is refused at once, whatever stands in it, and the refusal tells it",
	}, refusing(func(b *broken, h *joblease.HeldError) {
		if b.anyLocked() == h.Name {
			*h = joblease.HeldError{Name: h.Name, Clock: h.Clock}
		}
	})},
	{"an acquire counts the TTL from its first try", []string{
		"a row that is locked for longer than the TTL is granted for a full TTL afterwards",
	}, func(b *broken) {
		first := map[joblease.ClaimID]time.Time{}
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			now := b.Now()
			if _, ok := first[c.ID]; !ok {
				first[c.ID] = now
			}
			g, err := b.Memory.Acquire(ctx, c)
			if err == nil {
				b.edit(c.Name, func(r *row) {
					r.acquiredAt, r.expiresAt = first[c.ID], first[c.ID].Add(c.TTL)
					g.AcquiredAt, g.ExpiresAt = r.acquiredAt, r.expiresAt
				})
			}
			return g, err
		}
	}},
	{"a renewal counts the TTL from its start", []string{
		"a renewal that waited for a lock counts the TTL from its write",
	}, func(b *broken) {
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			start := b.Now()
			err := b.Memory.Renew(ctx, g)
			if err == nil {
				b.edit(g.Name, func(r *row) { r.renewedAt, r.expiresAt = start, start.Add(g.TTL) })
			}
			return err
		}
	}},
	{"a renewal goes through a lock", []string{
		"a renewal that waited for a lock counts the TTL from its write",
	}, func(b *broken) {
		b.renew = func(_ context.Context, g joblease.Grant) error {
			b.edit(g.Name, func(r *row) { r.extend(b.now(), g.TTL) })
			return nil
		}
	}},
	{"a release gives up on a locked row and says nothing", []string{
		"a release that waited for a lock frees the lease",
	}, func(b *broken) {
		b.release = func(ctx context.Context, g joblease.Grant) error {
			if b.anyLocked() == g.Name {
				return nil
			}
			return b.Memory.Release(ctx, g)
		}
	}},
	{"a release of a locked row is lost", []string{
		"a release that waited for a lock frees the lease",
	}, func(b *broken) {
		b.release = func(ctx context.Context, g joblease.Grant) error {
			if b.anyLocked() == g.Name {
				return joblease.ErrLost
			}
			return b.Memory.Release(ctx, g)
		}
	}},
	{"List waits for a locked row", []string{
		"a locked row does not keep List waiting",
	}, func(b *broken) {
		b.list = func(ctx context.Context) ([]joblease.Record, error) {
			if err := b.waitFree(ctx, b.anyLocked()); err != nil {
				return nil, err
			}
			return b.Memory.List(ctx)
		}
	}},
	{"a renewal waits for any locked row", []string{
		"a locked row does not keep other leases waiting",
	}, func(b *broken) {
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			if err := b.waitFree(ctx, b.anyLocked()); err != nil {
				return err
			}
			return b.Memory.Renew(ctx, g)
		}
	}},
}

// patient lets all calls ignore the end of their context.
func patient(b *broken) {
	b.acquire = func(_ context.Context, c joblease.Claim) (joblease.Grant, error) {
		return b.Memory.Acquire(context.Background(), c)
	}
	b.renew = func(_ context.Context, g joblease.Grant) error {
		return b.Memory.Renew(context.Background(), g)
	}
	b.release = func(_ context.Context, g joblease.Grant) error {
		return b.Memory.Release(context.Background(), g)
	}
}

var endingFaults = []fault{
	{"calls ignore the end of their context", []string{
		"a call whose context has ended is an error at once and writes nothing",
		"a call that waits for a locked row returns soon after its context has ended",
	}, patient},
	{"a renewal whose context ends is lost", []string{
		"a call whose context has ended is an error at once and writes nothing",
		"a call that waits for a locked row returns soon after its context has ended",
	}, func(b *broken) {
		b.renew = func(ctx context.Context, g joblease.Grant) error {
			err := b.Memory.Renew(ctx, g)
			if ctx.Err() != nil {
				return joblease.ErrLost
			}
			return err
		}
	}},
}

var watchFaults = []fault{
	{"a release wakes one candidate", []string{
		"a release wakes the candidates that watch the lease, on every handle",
	}, func(b *broken) {
		var only *joblease.Watch
		b.watch = func(name string) joblease.Watch {
			w := b.Memory.Watch(name)
			if only != nil {
				w.Wake = only.Wake
			}
			only = &w
			return w
		}
	}},
	{"a release is told by a name in lower case", []string{
		"a release wakes the candidates whatever the lease's name",
	}, func(b *broken) {
		b.watch = func(name string) joblease.Watch { return b.Memory.Watch(strings.ToLower(name)) }
	}},
	{"a release that nobody receives keeps the next one waiting", []string{
		"releases that nobody receives are merged and none of them waits",
	}, func(b *broken) {
		wake := make(chan struct{})
		b.watch = func(name string) joblease.Watch {
			w := b.Memory.Watch(name)
			w.Wake = wake
			return w
		}
		b.release = func(ctx context.Context, g joblease.Grant) error {
			err := b.Memory.Release(ctx, g)
			select {
			case wake <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			return err
		}
	}},
	{"a second Stop panics", []string{
		"a watch can be stopped twice and leaves the others alone",
	}, func(b *broken) {
		b.watch = func(name string) joblease.Watch {
			w := b.Memory.Watch(name)
			stop, done := w.Stop, make(chan struct{})
			var cleanup sync.Once
			w.Stop = func() {
				stop()
				select {
				case <-done:
					// Once only: the check's own cleanup stops it again.
					cleanup.Do(func() { panic("stopped twice") })
				default:
					close(done)
				}
			}
			return w
		}
	}},
	{"a Stop ends every watch of the lease", []string{
		"a watch can be stopped twice and leaves the others alone",
	}, func(b *broken) {
		b.watch = func(name string) joblease.Watch {
			w := b.Memory.Watch(name)
			w.Stop = func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				clear(b.watchers)
			}
			return w
		}
	}},
}
