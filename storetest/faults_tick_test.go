package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/joblease/joblease"
)

// asked is what a store goes by when it judges a tick: the claim, the row and
// the database's clock.
type asked struct {
	joblease.Claim
	r   row
	now time.Time
}

func (a asked) tick() time.Time { return tickOf(a.Tick, a.r, a.now) }
func (a asked) come(tick time.Time) bool {
	return a.Tick.Slot > 0 || !tick.After(a.now)
}

// judging lets a claim's tick be what pick says, and be claimable if ok says so.
func judging(pick func(a asked) time.Time, ok func(a asked, tick time.Time) bool) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			b.mu.Lock()
			a := asked{c, b.rows[c.Name], b.now()}
			b.mu.Unlock()
			if c.Tick.IsZero() || a.r.claim == c.ID || joblease.CheckTick(c.Tick) != nil {
				return b.Memory.Acquire(ctx, c)
			}
			tick := pick(a)
			if !ok(a, tick) {
				return joblease.Grant{}, &joblease.TickError{
					Name: c.Name, At: tick, Last: a.r.tick, Done: !a.r.unfinished, Clock: a.now,
				}
			}
			c.Tick = joblease.Tick{}
			g, err := b.Memory.Acquire(ctx, c)
			if err == nil {
				b.edit(c.Name, func(r *row) { r.tick, r.unfinished = tick, true })
				g.Tick = tick
			}
			return g, err
		}
	}
}

// claiming lets ok say whether a tick can be claimed.
func claiming(ok func(a asked, tick time.Time) bool) func(b *broken) { return judging(asked.tick, ok) }

// rightly is whether a tick can be claimed.
func rightly(a asked, tick time.Time) bool { return claimable(a.Tick, tick, a.r, a.now) }

// releasing lets change edit the row after each release; g is what was
// released, or not, as err says.
func releasing(change func(r *row, g joblease.Grant, err error)) func(b *broken) {
	return func(b *broken) {
		b.release = func(ctx context.Context, g joblease.Grant) error {
			err := b.Memory.Release(ctx, g)
			b.edit(g.Name, func(r *row) { change(r, g, err) })
			return err
		}
	}
}

// refusingTick lets change edit each refusal of a tick.
func refusingTick(change func(b *broken, e *joblease.TickError)) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			g, err := b.Memory.Acquire(ctx, c)
			var e *joblease.TickError
			if errors.As(err, &e) {
				change(b, e)
			}
			return g, err
		}
	}
}

// heldFirst refuses as held whatever could not be taken without a tick, if only
// it is so.
func heldFirst(only func(b *broken, c joblease.Claim) bool) func(b *broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			b.mu.Lock()
			r, now := b.rows[c.Name], b.now()
			held := b.locks[c.Name] != nil || !takes(c, r, now)
			b.mu.Unlock()
			if held && only(b, c) {
				c.Tick = joblease.Tick{}
			}
			return b.Memory.Acquire(ctx, c)
		}
	}
}

const (
	tickOnce       = "a tick is granted once, and neither it nor an older one ever again"
	tickLater      = "a later tick is granted when the lease is free, by a microsecond or a day"
	tickNotDue     = "a tick that has not come is refused and no row appears"
	tickDue        = "a tick is granted from the instant at which it comes"
	tickFirst      = "a tick that cannot be claimed is refused as such, whoever holds the lease"
	tickLocked     = "a tick of a locked row is refused at once, as what it would be without the lock"
	tickLeft       = "a claim without a tick leaves the tick alone"
	tickOwn        = "a claim of a tick that is sent again gets its own grant and tick back"
	tickOwnOver    = "a claim that is sent again after its release or a takeover does not get its tick again"
	tickRace       = "of many candidates for one tick exactly one is granted, round after round"
	tickMicro      = "a tick is kept to the microsecond, and what is finer is cut off"
	tickImpossible = "a tick that cannot be kept or that says two things is an error and writes nothing"
)

var tickFaults = []fault{
	{"a tick is compared with <=", []string{tickOnce, tickRace}, claiming(func(a asked, tick time.Time) bool {
		return a.come(tick) && !tick.Before(a.r.tick)
	})},
	{"a tick only has to differ from the last one", []string{tickOnce}, claiming(func(a asked, tick time.Time) bool {
		return a.come(tick) && !tick.Equal(a.r.tick)
	})},
	{"ticks are compared in whole seconds", []string{tickLater, tickMicro}, claiming(func(a asked, tick time.Time) bool {
		return a.come(tick) && tick.Truncate(time.Second).After(a.r.tick.Truncate(time.Second))
	})},
	{"a release resets the tick", []string{tickOnce, tickRace}, releasing(func(r *row, _ joblease.Grant, err error) {
		if err == nil {
			r.tick, r.unfinished = time.Time{}, false
		}
	})},
	{"a takeover resets the tick", []string{tickLeft, tickOnce}, onChange(func(r *row, old row) {
		if r.tick.Equal(old.tick) {
			r.tick, r.unfinished = time.Time{}, false
		}
	})},
	{"a new tick is not stored", []string{tickLater}, onChange(func(r *row, old row) {
		if !old.tick.IsZero() {
			r.tick = old.tick
		}
	})},
	{"a tick that has not come is granted", []string{tickNotDue, tickFirst}, claiming(func(a asked, tick time.Time) bool {
		return tick.After(a.r.tick) || rightly(a, tick)
	})},
	{"a tick that has not come leaves a row", []string{tickNotDue}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			g, err := b.Memory.Acquire(ctx, c)
			if _, found := b.Get(c.Name); !found {
				b.Put(joblease.Record{Name: c.Name, Token: 1, Version: 1})
			}
			return g, err
		}
	}},
	{"whether a tick has come is told by the replica's clock", []string{tickDue}, claiming(func(a asked, tick time.Time) bool {
		return !tick.After(time.Now()) && rightly(a, tick)
	})},
	{"a tick comes a tenth of a second late", []string{tickDue}, claiming(func(a asked, tick time.Time) bool {
		return !tick.After(a.now.Add(-time.Second/10)) && rightly(a, tick)
	})},
	{"a tick comes a tenth of a second early", []string{tickDue}, claiming(func(a asked, tick time.Time) bool {
		a.now = a.now.Add(time.Second / 10)
		return rightly(a, tick)
	})},
	{"who holds the lease is told first", []string{tickFirst, slotLikeTick}, heldFirst(func(*broken, joblease.Claim) bool { return true })},
	{"a locked row is held, whatever the tick", []string{tickLocked}, heldFirst(func(b *broken, c joblease.Claim) bool {
		return b.anyLocked() == c.Name
	})},
	{"a tick of a locked row waits", []string{tickLocked}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if err := b.waitFree(ctx, c.Name); err != nil {
				return joblease.Grant{}, err
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
	{"a refusal does not tell the last tick", []string{tickOnce}, refusingTick(func(_ *broken, e *joblease.TickError) { e.Last = time.Time{} })},
	{"a refusal tells each run as finished", []string{tickOnce}, refusingTick(func(_ *broken, e *joblease.TickError) { e.Done = true })},
	{"a refusal tells of an unfinished run where there was none", []string{tickNotDue}, refusingTick(func(_ *broken, e *joblease.TickError) {
		e.Done = e.Done && !e.Last.IsZero()
	})},
	{"a refusal does not tell the tick", []string{tickOnce}, refusingTick(func(_ *broken, e *joblease.TickError) { e.At = e.Last })},
	{"a refused tick is told with the clock of another machine", []string{tickOnce, tickNotDue}, refusingTick(func(_ *broken, e *joblease.TickError) {
		e.Clock = e.Clock.Add(time.Minute)
	})},
	{"a refused tick counts in the version", []string{tickFirst, tickOnce}, refusingTick(func(b *broken, e *joblease.TickError) {
		b.edit(e.Name, func(r *row) { r.version++ })
	})},
	{"a claim without a tick forgets that the run is unfinished", []string{tickLeft}, onChange(func(r *row, old row) {
		if r.tick.Equal(old.tick) {
			r.unfinished = false
		}
	})},
	{"a release without a tick finishes that of another", []string{tickLeft}, releasing(func(r *row, g joblease.Grant, err error) {
		r.unfinished = r.unfinished && !(err == nil && g.Finished)
	})},
	{"a claim that is sent again gets the slot that the clock is in", []string{tickOwn}, onRepeat(func(r *row, old row) {
		r.tick = r.tick.Add(50 * time.Millisecond)
	})},
	{"a claim that is sent again is refused for its own tick", []string{tickOwn}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if r, _ := b.Get(c.Name); !c.Tick.IsZero() && r.Claim == c.ID {
				return joblease.Grant{}, &joblease.TickError{Name: c.Name, At: r.Tick, Last: r.Tick, Clock: b.Now()}
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
	{"a claim that is sent again has finished", []string{tickOwn}, onRepeat(func(r *row, _ row) { r.unfinished = false })},
	{"a claim that once had a tick has it still", []string{tickOwnOver}, remembering(func(r *row, once joblease.Grant) { r.claim = once.Claim })},
	{"the tick is judged before the row is locked", []string{tickRace, slotRace}, claiming(func(a asked, tick time.Time) bool {
		defer time.Sleep(slowly)
		return rightly(a, tick)
	})},
}

var tickLimitFaults = []fault{
	{"ticks are kept in milliseconds", []string{tickMicro, tickLater}, judging(func(a asked) time.Time {
		return a.tick().Truncate(time.Millisecond)
	}, rightly)},
	{"ticks are compared as they are sent and kept as they can be", []string{tickMicro}, claiming(func(a asked, tick time.Time) bool {
		if a.Tick.Slot == 0 {
			tick = a.Tick.At
		}
		return rightly(a, tick)
	})},
	{"ticks are rounded", []string{tickMicro}, judging(func(a asked) time.Time {
		a.Tick.At = a.Tick.At.Round(time.Microsecond)
		return a.tick()
	}, rightly)},
	{"ticks are kept in their own zone", []string{tickMicro}, judging(func(a asked) time.Time {
		return a.tick().In(a.Tick.At.Location())
	}, rightly)},
	{"a tick that cannot be kept is left out", []string{tickImpossible}, asking(func(c *joblease.Claim, _ joblease.Record) {
		if joblease.CheckTick(c.Tick) != nil {
			c.Tick = joblease.Tick{}
		}
	})},
	{"a slot is preferred to an instant", []string{tickImpossible}, asking(func(c *joblease.Claim, _ joblease.Record) {
		if c.Tick.Slot != 0 {
			c.Tick.At = time.Time{}
		}
	})},
	{"a tick that cannot be kept looks like one that may come", []string{tickImpossible}, func(b *broken) {
		b.acquire = func(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
			if joblease.CheckTick(c.Tick) != nil {
				return joblease.Grant{}, &joblease.TickError{Name: c.Name, At: c.Tick.At, Clock: b.Now()}
			}
			return b.Memory.Acquire(ctx, c)
		}
	}},
}
