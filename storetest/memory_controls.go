package storetest

import (
	"sync"
	"time"

	"github.com/joblease/joblease"
)

// Now returns the time on the database's clock, in UTC.
func (m *Memory) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

// now needs m.mu. It has no monotonic reading: an instant from a database has none.
func (m *Memory) now() time.Time {
	return m.start.Round(0).UTC().Add(time.Since(m.start) + m.offset)
}

// Step steps the database's clock by d, forward or, if d is negative, back.
// Instants that are stored stay what they are.
func (m *Memory) Step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset += d
}

// Lock locks the row of the lease name, as a transaction of another session
// does, until unlock is called. Meanwhile an acquire is refused at once, and a
// renewal or a release waits. A name without a row can be locked too, as by an
// insert that is not committed yet. Several locks on one row are held together;
// it is free when all are unlocked. Lock does not wait, and calling unlock again
// does nothing.
func (m *Memory) Lock(name string) (unlock func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.locks[name]
	if l == nil {
		l = &rowLock{free: make(chan struct{})}
		m.locks[name] = l
	}
	l.n++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.n--; l.n == 0 {
			delete(m.locks, name)
			close(l.free)
		}
	})
}

// Get returns the row of the lease name, and whether there is one.
func (m *Memory) Get(name string) (r joblease.Record, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.rows[name]
	if !ok {
		return joblease.Record{}, false
	}
	return stored.record(name, m.now()), true
}

// Put writes r as the row of the lease r.Name, as an operator might, whatever
// stands there and whoever locks it. r.Remaining is not used, and r.TickDone only
// if there is a tick. It panics if the token or the version is less than 1, since
// no row of a lease is like that.
func (m *Memory) Put(r joblease.Record) {
	if r.Token < 1 || r.Version < 1 {
		panic("storetest: Put needs a token and a version of at least 1")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[r.Name] = row{
		holder: r.Holder, claim: r.Claim, token: r.Token, version: r.Version, ttl: r.TTL,
		acquiredAt: r.AcquiredAt, renewedAt: r.RenewedAt, expiresAt: r.ExpiresAt,
		tick: micro(r.Tick), unfinished: !r.Tick.IsZero() && !r.TickDone,
	}
}

// Delete deletes the row of the lease name, as an operator might, whoever locks
// it. Nobody is notified.
func (m *Memory) Delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, name)
}

// SetNotify cuts the notifications of releases, or mends them. A new Memory
// notifies. Watchers are woken by the change, as after the loss of the
// connection on which a store listens.
func (m *Memory) SetNotify(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf == on {
		m.deaf = !on
		for w := range m.watchers {
			w.notify()
		}
	}
}

type watcher struct {
	name string
	wake chan struct{}
}

// notify merges the value with one that nobody has received.
func (w *watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch implements [joblease.Watcher].
func (m *Memory) Watch(name string) joblease.Watch {
	w := &watcher{name: name, wake: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[w] = struct{}{}
	return joblease.Watch{
		Wake: w.wake,
		Live: func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			_, watching := m.watchers[w]
			return watching && !m.deaf
		},
		Stop: func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.watchers, w)
		},
	}
}

// released wakes the candidates for name. It needs m.mu.
func (m *Memory) released(name string) {
	if m.deaf {
		return
	}
	for w := range m.watchers {
		if w.name == name {
			w.notify()
		}
	}
}
