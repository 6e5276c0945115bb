package main

import (
	"slices"
	"time"
)

// history is what was seen of the replicas, by their numbers.
type history struct {
	runs  []run
	terms []term
	// kill and stop are the signals that ended a leader's term.
	kill, stop blow
}

// run is one execution of the job.
type run struct {
	replica  int
	due      time.Time // the tick
	from, to time.Time // to is zero if the run was cut short
}

// term is the time in which a replica led.
type term struct {
	replica  int
	from, to time.Time // to is zero while the term lasts
}

// blow is a signal that was sent to a replica, just after that instant.
type blow struct {
	replica int
	at      time.Time // zero if it was not sent
}

// add takes in what a replica has reported.
func (h *history) add(replica int, r report) {
	switch r.Kind {
	case leads:
		h.terms = append(h.terms, term{replica: replica, from: r.At})
	case released, lost:
		h.endTerm(replica, r.At)
	case begins:
		h.runs = append(h.runs, run{replica: replica, due: r.Due, from: r.At})
	case ends:
		for i := range h.runs {
			if u := &h.runs[i]; u.replica == replica && u.due.Equal(r.Due) {
				u.to = r.At
			}
		}
	}
}

// endTerm ends the term of a replica, if that lasts. A leader that is told to end
// starts nothing from there on, so its term ends with the signal, not with the
// release.
func (h *history) endTerm(replica int, at time.Time) {
	for i := range h.terms {
		if t := &h.terms[i]; t.replica == replica && t.to.IsZero() {
			t.to = at
		}
	}
}

// successor returns when another replica began to lead after b, or the zero
// instant if none did.
func (h *history) successor(b blow) (first time.Time) {
	for _, t := range h.terms {
		if !b.at.IsZero() && t.replica != b.replica && t.from.After(b.at) && (first.IsZero() || t.from.Before(first)) {
			first = t.from
		}
	}
	return first
}

// settle is how long before a tick a term must have begun to be expected to run
// it: starting the cron takes a moment.
const settle = 100 * time.Millisecond

// ledAt reports whether a replica led at that instant, and long enough to be
// ready for it.
func (h *history) ledAt(at time.Time) bool {
	return slices.ContainsFunc(h.terms, func(t term) bool {
		return t.from.Add(settle).Before(at) && (t.to.IsZero() || at.Before(t.to))
	})
}

// summary is what became of the ticks.
type summary struct {
	ticks      int         // that were run
	doubled    []time.Time // ticks that were run more than once
	overlapped []time.Time // ticks whose run began while another replica still ran one
	unled      []time.Time // ticks not run because nobody led
	missed     []time.Time // ticks not run although somebody led
	unfinished int         // runs that were cut short

	takeover time.Duration // from the kill to the next term, zero if there was none
	handover time.Duration // from the stop to the next term, zero if there was none
	drained  bool          // the runs of the leader that was told to stop ended before the next term
}

// ok reports whether all went as promised. Ticks may be missed: a lease sees to
// it that nothing runs twice, not that everything runs.
func (s summary) ok() bool {
	return len(s.doubled) == 0 && len(s.overlapped) == 0 && s.takeover > 0 && s.handover > 0 && s.drained
}

// summarize accounts for each tick from the first that was run to the last.
func (h *history) summarize(every time.Duration) summary {
	var s summary
	if next := h.successor(h.kill); !next.IsZero() {
		s.takeover = next.Sub(h.kill.at)
	}
	if next := h.successor(h.stop); !next.IsZero() {
		s.handover = next.Sub(h.stop.at)
		s.drained = !slices.ContainsFunc(h.runs, func(r run) bool {
			return r.replica == h.stop.replica && (r.to.IsZero() || !r.to.Before(next))
		})
	}
	runs := slices.Clone(h.runs)
	slices.SortStableFunc(runs, func(a, b run) int { return a.from.Compare(b.from) })
	count := make(map[int64]int) // by the tick in nanoseconds, since == on instants compares more than the instant
	for i, r := range runs {
		count[r.due.UnixNano()]++
		if count[r.due.UnixNano()] == 2 {
			s.doubled = append(s.doubled, r.due)
		}
		if r.to.IsZero() {
			s.unfinished++
		}
		// A run that was cut short ended with its process, at an instant that
		// nobody knows.
		if slices.ContainsFunc(runs[:i], func(o run) bool { return o.replica != r.replica && r.from.Before(o.to) }) {
			s.overlapped = append(s.overlapped, r.due)
		}
	}
	s.ticks = len(count)
	if len(runs) == 0 {
		return s
	}
	byDue := func(a, b run) int { return a.due.Compare(b.due) }
	first, last := slices.MinFunc(runs, byDue).due, slices.MaxFunc(runs, byDue).due
	for at := first; at.Before(last); at = at.Add(every) {
		switch {
		case count[at.UnixNano()] > 0:
		case h.ledAt(at):
			s.missed = append(s.missed, at)
		default:
			s.unled = append(s.unled, at)
		}
	}
	return s
}
