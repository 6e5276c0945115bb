package main

import (
	"slices"
	"time"
)

// tick is what became of one tick of a job.
type tick struct {
	job string
	due time.Time
	by  []int // the replicas that began it, in this order
	end []int // those that finished it
}

// account is what became of all the ticks that were begun.
type account struct {
	ticks  []*tick
	killed map[int]bool // replicas
}

func (a *account) find(job string, due time.Time) *tick {
	for _, t := range a.ticks {
		if t.job == job && t.due.Equal(due) {
			return t
		}
	}
	t := &tick{job: job, due: due}
	a.ticks = append(a.ticks, t)
	return t
}

// add takes in what a replica has reported. It returns the tick.
func (a *account) add(n news) *tick {
	t := a.find(n.Job, n.Due)
	if n.End {
		t.end = append(t.end, n.replica)
	} else {
		t.by = append(t.by, n.replica)
	}
	return t
}

// doubled reports whether two replicas ran t, or one did twice. A run after one
// that was cut short by a kill is not the second, if the job is to run again.
func (a *account) doubled(t *tick) bool {
	if len(t.end) > 1 {
		return true
	}
	cut := func(replica int) bool { return a.killed[replica] && !slices.Contains(t.end, replica) }
	for _, earlier := range t.by[:max(0, len(t.by)-1)] {
		if t.job != "bill" || !cut(earlier) {
			return true
		}
	}
	return false
}

// summary is the numbers.
type summary struct {
	run     int // ticks that somebody finished
	doubled int
	dropped int // ticks whose run was cut short, and nobody ran it again
	again   int // ticks whose run was cut short, and another replica did it again
	missed  map[string]int
}

func (a *account) summarize() summary {
	s := summary{missed: map[string]int{}}
	first, last := map[string]time.Time{}, map[string]time.Time{}
	for _, t := range a.ticks {
		switch {
		case len(t.end) == 0:
			s.dropped++
		case len(t.by) > 1:
			s.again++
			fallthrough
		default:
			s.run++
		}
		if a.doubled(t) {
			s.doubled++
		}
		if first[t.job].IsZero() || t.due.Before(first[t.job]) {
			first[t.job] = t.due
		}
		if t.due.After(last[t.job]) {
			last[t.job] = t.due
		}
	}
	for job, every := range map[string]time.Duration{"sweep": sweepEvery, "bill": billEvery} {
		due := 0
		if !first[job].IsZero() {
			due = int(last[job].Sub(first[job])/every) + 1
		}
		for _, t := range a.ticks {
			if t.job == job {
				due--
			}
		}
		s.missed[job] = due
	}
	return s
}
