package joblease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Event is one thing that happened to a lease, as [Config].Observe is told.
type Event struct {
	Kind EventKind
	// Time is when it happened, on the local wall clock.
	Time time.Time
	// Lease is the name of the lease, Replica the label of this candidate.
	Lease, Replica string
	// Token of the term, for the kinds that concern one. A later term of the
	// same lease has a greater token.
	Token int64
	// Holder and Remaining say who holds the lease and for how long, for
	// [EventStandby].
	Holder    string
	Remaining time.Duration
	// Failures counts the calls that have failed in a row, for [EventFailing],
	// and those that had, for [EventRecovered].
	Failures int
	// Tick is the tick that the term, or the event, is about; zero if there is
	// none. It is an instant of the job's schedule, in UTC.
	Tick time.Time
	// Err is the error, for the kinds that have one. For [EventLost] it is a
	// *[LostError].
	Err error
}

// EventKind says what happened.
type EventKind uint8

// The kinds of events. The level is that of the log line.
const (
	// EventStandby: another holds the lease; this replica waits. Once for each
	// holder. Info.
	EventStandby EventKind = iota + 1
	// EventAcquired: a term began. Info; that of a tick, Debug.
	EventAcquired
	// EventRenewed: a renewal succeeded. Debug.
	EventRenewed
	// EventFailing: a call to the store failed; it will be tried again. Warn: the
	// first at once, then at a bounded rate.
	EventFailing
	// EventRecovered: the store answers again. Info.
	EventRecovered
	// EventLost: the term ended without a release; the work has been told to
	// stop. Info. An overrun is told by EventOverrun alone.
	EventLost
	// EventReleased: the work has stopped and the lease is free. Info; after a
	// tick, Debug.
	EventReleased
	// EventReleaseFailed: the work has stopped, or a campaign was given up whose
	// last answer is not known, and the release failed. If the lease is held, it
	// expires by itself. Warn.
	EventReleaseFailed
	// EventOverrun: the work did not stop within StopTimeout. Error.
	EventOverrun
	// EventWorkFailed: the scheduler, or the run of a tick, returned an error or
	// panicked. Error.
	EventWorkFailed
	// EventTickMissed: a [Guard] has given up a tick that nobody has run, as far
	// as this replica knows. Err says why: that of the store, at Info; or ErrHeld,
	// if an earlier run still went on, at Debug.
	EventTickMissed
)

// eventText holds, for each kind, its name, its log line and its level.
var eventText = map[EventKind]struct {
	name, line string
	level      slog.Level
}{
	EventStandby:       {"standby", "standing by: another replica holds the lease", slog.LevelInfo},
	EventAcquired:      {"acquired", "lease acquired", slog.LevelInfo},
	EventRenewed:       {"renewed", "lease renewed", slog.LevelDebug},
	EventFailing:       {"failing", "lease store fails, trying again", slog.LevelWarn},
	EventRecovered:     {"recovered", "lease store answers again", slog.LevelInfo},
	EventLost:          {"lost", "lease lost, stopping the work", slog.LevelInfo},
	EventReleased:      {"released", "lease released", slog.LevelInfo},
	EventReleaseFailed: {"release failed", "could not make sure that the lease is free; if it is not, it expires by itself", slog.LevelWarn},
	EventOverrun:       {"overrun", "work has not stopped in time", slog.LevelError},
	EventWorkFailed:    {"work failed", "work under the lease failed", slog.LevelError},
	EventTickMissed:    {"tick missed", "tick not run", slog.LevelInfo},
}

// level is that of the log line. A job that runs each second does not fill the log.
func (e Event) level() slog.Level {
	switch {
	case (e.Kind == EventAcquired || e.Kind == EventReleased) && !e.Tick.IsZero(),
		e.Kind == EventTickMissed && errors.Is(e.Err, ErrHeld):
		return slog.LevelDebug
	}
	return eventText[e.Kind].level
}

// String returns the kind's name.
func (k EventKind) String() string {
	if t, ok := eventText[k]; ok {
		return t.name
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// MarshalText returns the kind's name.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

const (
	// maxQueuedEvents bounds the memory behind an observer or a log handler that
	// has blocked for ever.
	maxQueuedEvents = 256
	// A failing store is logged again after failingLogEvery, and when it fails
	// anew not sooner than failingLogLeast after the line before.
	failingLogEvery = time.Minute
	failingLogLeast = 10 * time.Second
)

// notifier carries events to the log and to the observer on a goroutine that
// lives only while there is something to deliver, so that neither of them can
// delay a renewal or a stop, and an idle lease costs no goroutine.
type notifier struct {
	log     *slog.Logger
	observe func(Event)

	mu      sync.Mutex
	queue   []Event
	dropped int
	idle    chan struct{} // not nil while the goroutine lives; closed at its end

	// Only the delivering goroutine touches these.
	failingLogged time.Time
	problemLogged string
}

// emit queues e. It never blocks.
func (n *notifier) emit(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) >= maxQueuedEvents {
		n.dropped++
		return
	}
	n.queue = append(n.queue, e)
	if n.idle == nil {
		n.idle = make(chan struct{})
		go n.deliver()
	}
}

// flush waits until all that was queued has been delivered, but not longer than
// d: a callback that blocks for ever must not keep its service from ending.
func (n *notifier) flush(d time.Duration) {
	n.mu.Lock()
	idle := n.idle
	n.mu.Unlock()
	if idle == nil {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

func (n *notifier) deliver() {
	finished := false
	defer func() {
		if !finished { // a callback called runtime.Goexit
			go n.deliver()
		}
	}()
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			close(n.idle)
			n.idle, n.queue = nil, nil
			n.mu.Unlock()
			finished = true
			return
		}
		e, dropped := n.queue[0], n.dropped
		n.queue, n.dropped = n.queue[1:], 0
		n.mu.Unlock()

		if dropped > 0 {
			n.guard(func() {
				n.log.Warn("joblease: events were dropped: a log handler or an observer is too slow", "dropped", dropped)
			})
		}
		n.guard(func() { n.write(e) })
		if n.observe != nil {
			n.guard(func() { n.observe(e) })
		}
	}
}

// guard runs a callback of the caller's and survives its panic.
func (n *notifier) guard(callback func()) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		// The log handler may be what panicked: then nobody is left to tell.
		defer func() { _ = recover() }()
		n.log.Error("joblease: an observer or a log handler panicked", "panic", v, "stack", string(debug.Stack()))
	}()
	callback()
}

// write puts e in the log, with the instant at which it happened.
func (n *notifier) write(e Event) {
	level, ctx := e.level(), context.Background()
	if !n.log.Enabled(ctx, level) || e.Kind == EventFailing && !n.worthLogging(e) {
		return
	}
	r := slog.NewRecord(e.Time, level, "joblease: "+eventText[e.Kind].line, 0)
	r.AddAttrs(slog.String("lease", e.Lease), slog.String("replica", e.Replica))
	if e.Token != 0 {
		r.AddAttrs(slog.Int64("token", e.Token))
	}
	if !e.Tick.IsZero() {
		r.AddAttrs(slog.Time("tick", e.Tick))
	}
	if e.Kind == EventStandby {
		r.AddAttrs(slog.String("holder", e.Holder), slog.Duration("remaining", e.Remaining))
	}
	if e.Failures != 0 {
		r.AddAttrs(slog.Int("failures", e.Failures))
	}
	if e.Err != nil {
		r.AddAttrs(slog.Any("error", e.Err))
	}
	// There is nowhere to report that the log does not work.
	_ = n.log.Handler().Handle(ctx, r)
}

// worthLogging bounds the lines of a store that fails: the first at once, then
// one a minute, and one when a different part of the setup is found to be wrong.
func (n *notifier) worthLogging(e Event) bool {
	var problem string
	var setup *SetupError
	if errors.As(e.Err, &setup) {
		problem = setup.Problem
	}
	since := e.Time.Sub(n.failingLogged)
	if n.failingLogged.IsZero() || since >= failingLogEvery ||
		since >= failingLogLeast && e.Failures == 1 ||
		problem != "" && problem != n.problemLogged {
		n.failingLogged, n.problemLogged = e.Time, problem
		return true
	}
	return false
}
