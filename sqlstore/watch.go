package sqlstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/joblease/joblease"
)

const (
	// pollEvery is about how late a release is told. A look is one read by key,
	// some ten microseconds of one core.
	pollEvery = 100 * time.Millisecond
	// pollTimeout bounds a look, and is the pause after one that failed.
	pollTimeout = time.Second
)

// Watch implements [joblease.Watcher]. A release is told within about 100 ms.
// While there are watches, one goroutine of the store reads the rows of their
// names that often; it ends with the last watch, or by [SQLite.Close], after
// which no watch is live. When the database cannot be read, or the pool has no
// connection to spare, no watch is live until that is over.
func (s *SQLite) Watch(name string) joblease.Watch { return s.watches.add(name) }

// Close ends the watches and waits for their goroutine. The other methods go on
// to work, so a store may be closed before the last release. Close never closes
// the database.
func (s *SQLite) Close() { s.watches.close() }

// watches tells candidates about releases. SQLite has no notifications, so a
// goroutine looks at the rows.
//
// PRAGMA data_version would be a cheaper look while nothing is written. But it
// compares within one connection only, so that one of the caller's pool would
// have to be kept for it, and it does not see what that connection writes. A
// database in memory has but one connection.
type watches struct {
	// look returns those of names that are free, with the versions of their rows.
	look func(ctx context.Context, names []string) (map[string]int64, error)

	live   atomic.Bool // the last look succeeded; written under mu
	mu     sync.Mutex
	all    map[*watch]struct{}
	stop   context.CancelFunc // ends the goroutine; nil if there is none
	closed bool
	wg     sync.WaitGroup
}

// watch is one subscription.
type watch struct {
	name string
	wake chan struct{}
	told int64 // version of the release that was told last, or held
}

// held is no version of a row: at the last look there was nothing to tell.
const held = -1

func (w *watches) add(name string) joblease.Watch {
	one := &watch{name: name, wake: make(chan struct{}, 1), told: held}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.all[one] = struct{}{}
		if w.stop == nil {
			ctx, cancel := context.WithCancel(context.Background())
			w.stop = cancel
			w.wg.Go(func() { w.run(ctx) })
		}
	}
	return joblease.Watch{Wake: one.wake, Live: w.live.Load, Stop: func() { w.remove(one) }}
}

func (w *watches) remove(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one)
	if len(w.all) == 0 {
		w.end()
	}
}

func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	w.end()
	for one := range w.all {
		one.notify() // that it is not live any more
	}
	clear(w.all)
	w.mu.Unlock()
	w.wg.Wait()
}

// end tells the goroutine to end. A watch that is added before it has ended
// starts another.
func (w *watches) end() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
		w.live.Store(false)
	}
}

func (w *watches) run(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(ctx, pollTimeout)
		free, err := w.look(bounded, w.names())
		cancel()
		w.tell(ctx, free, err)
		if err != nil {
			next.Reset(pollTimeout)
		} else {
			next.Reset(pollEvery)
		}
	}
}

// names returns the watched names, each once.
func (w *watches) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for one := range w.all {
		names = append(names, one.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tell wakes the watches of rows that have become free since the look before,
// and all if looking has begun or ceased to work.
func (w *watches) tell(ctx context.Context, free map[string]int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return // the store is closed, or another goroutine has taken over
	}
	live := err == nil
	changed := w.live.Swap(live) != live
	for one := range w.all {
		version, is := free[one.name]
		if !is {
			version = held
		}
		if changed || live && is && version != one.told {
			one.notify()
		}
		if live {
			one.told = version
		}
	}
}

// notify wakes the candidate. A value that it has not received yet will do.
func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
