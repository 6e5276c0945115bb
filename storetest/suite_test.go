package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
)

// broken is a store that is right but for what its fields replace.
type broken struct {
	*Memory
	acquire func(context.Context, joblease.Claim) (joblease.Grant, error)
	renew   func(context.Context, joblease.Grant) error
	release func(context.Context, joblease.Grant) error
	list    func(context.Context) ([]joblease.Record, error)
	watch   func(name string) joblease.Watch
	// elsewhere is another table, if the tables are to be mixed up.
	elsewhere joblease.Store
}

func (b *broken) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	if b.acquire != nil {
		return b.acquire(ctx, c)
	}
	return b.Memory.Acquire(ctx, c)
}

func (b *broken) Renew(ctx context.Context, g joblease.Grant) error {
	if b.renew != nil {
		return b.renew(ctx, g)
	}
	return b.Memory.Renew(ctx, g)
}

func (b *broken) Release(ctx context.Context, g joblease.Grant) error {
	if b.release != nil {
		return b.release(ctx, g)
	}
	return b.Memory.Release(ctx, g)
}

func (b *broken) List(ctx context.Context) ([]joblease.Record, error) {
	if b.list != nil {
		return b.list(ctx)
	}
	return b.Memory.List(ctx)
}

func (b *broken) Watch(name string) joblease.Watch {
	if b.watch != nil {
		return b.watch(name)
	}
	return b.Memory.Watch(name)
}

// edit changes the row of name, if there is one, as no statement would.
func (b *broken) edit(name string, change func(r *row)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.rows[name]; ok {
		change(&r)
		b.rows[name] = r
	}
}

// fault is one way to break the contract, and the checks that must notice it.
type fault struct {
	name   string
	fails  []string
	inject func(b *broken)
}

func faults() []fault {
	return slices.Concat(acquireFaults, takeoverFaults, renewFaults, releaseFaults, refusalFaults,
		nameFaults, raceFaults, lockFaults, limitFaults, endingFaults, watchFaults,
		tickFaults, runFaults, tickLimitFaults, slotFaults)
}

func backend(tb testing.TB, m *Memory, s joblease.Store, elsewhere joblease.Store) Backend {
	return Backend{
		Open:      func() joblease.Store { return s },
		Elsewhere: func() []joblease.Store { return []joblease.Store{elsewhere} },
		Advance:   m.Step,
		Delete:    m.Delete,
		SetToken: func(name string, token int64) {
			r, _ := m.Get(name)
			r.Token = token
			m.Put(r)
		},
		Lock: func(name string) func() {
			unlock := m.Lock(name)
			tb.Cleanup(unlock)
			return unlock
		},
	}
}

func TestMemoryKeepsTheContract(t *testing.T) {
	Run(t, func(t *testing.T) Backend {
		m := NewMemory()
		return backend(t, m, m, NewMemory())
	})
}

// In the bubble the clock cannot be stepped, so this is also the way of stores
// for which the suite has to wait. It ends only if whatever waits in Memory
// waits durably.
func TestMemoryKeepsTheContractInABubble(t *testing.T) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemory()
				b := backend(t, m, m, NewMemory())
				b.Advance = nil
				c.run(newEnv(t, b))
			})
		})
	}
}

func TestTheSuiteNoticesEachFault(t *testing.T) {
	byName := map[string]check{}
	for _, c := range checks() {
		byName[c.name] = c
	}
	for _, f := range faults() {
		for _, name := range f.fails {
			t.Run(f.name+"/"+name, func(t *testing.T) {
				c, ok := byName[name]
				if !ok {
					t.Fatal("there is no such check")
				}
				s := &broken{Memory: NewMemory(), elsewhere: NewMemory()}
				f.inject(s)
				r := &recorder{TB: t}
				r.run(func() {
					e := newEnv(r, backend(t, s.Memory, s, s.elsewhere))
					e.patience, e.promptly = 400*time.Millisecond, 200*time.Millisecond
					c.run(e)
				})
				if !r.failed {
					t.Fatal("the check passed")
				}
				t.Logf("it says: %s", r.said)
			})
		}
	}
}

// A check that cannot fail proves nothing.
func TestEachCheckNoticesSomeFault(t *testing.T) {
	var noticed []string
	for _, f := range faults() {
		noticed = append(noticed, f.fails...)
	}
	for _, c := range checks() {
		if !slices.Contains(noticed, c.name) {
			t.Errorf("no fault fails the check %q", c.name)
		}
	}
}

func TestACheckWhoseHookIsMissingIsSkipped(t *testing.T) {
	skipped := 0
	for _, c := range checks() {
		r := &recorder{TB: t}
		m := NewMemory()
		r.run(func() {
			c.run(newEnv(r, Backend{Open: func() joblease.Store { return struct{ joblease.Store }{m} }, Advance: m.Step}))
		})
		if r.failed {
			t.Errorf("%s: %s", c.name, r.said)
		}
		if r.skipped {
			skipped++
		}
	}
	if skipped == 0 || skipped > len(checks())/3 {
		t.Errorf("%d of %d checks were skipped", skipped, len(checks()))
	}
}

// recorder is a test whose failure is not the failure of the test it is part of.
type recorder struct {
	testing.TB
	failed, skipped bool
	said            string
}

func (r *recorder) run(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.failed, r.said = true, fmt.Sprint("panic: ", p)
			}
		}()
		fn()
	}()
	<-done
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed, r.said = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped, r.said = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

var errBroken = errors.New("broken")
