package main

import (
	"fmt"
	"time"

	"github.com/joblease/joblease/examples/internal/board"
	"github.com/joblease/joblease/examples/internal/fleet"
)

// show is what a person sees of it, one line for each thing that happens.
type show struct {
	*board.Board
	options

	fleet   *fleet.Fleet[news]
	history history
	told    [replicas]bool // to end
	due     time.Time      // of the last tick shown
}

func newShow(o options) *show { return &show{Board: board.New(), options: o} }

// column is the width of a replica's column.
const column = 11

func (s *show) title(where string) {
	held := fmt.Sprintf("one lease of %v", s.ttl)
	if s.unguarded {
		held = "no lease in common"
	}
	fmt.Printf("%d replicas of a service, a cron job due every second, %s, in %s\n\n",
		replicas, s.Paint(held, board.Bold), where)
	s.Head("tick", replicas, column)
}

// row shows one thing that happened to a replica.
func (s *show) row(at, due time.Time, replica int, text, colour string) {
	s.Row(at, due, column*replica, text, colour)
}

func (s *show) news(n news) {
	switch n.Kind {
	case begins:
		s.missed(n.Due)
		s.row(n.At, n.Due, n.replica, "runs", board.Plain)
		if n.Due.After(s.due) {
			s.due = n.Due
		}
	case ends:
		if s.told[n.replica] {
			s.row(n.At, n.Due, n.replica, "finishes", board.Plain)
		}
	case leads:
		s.missed(n.At)
		s.row(n.At, time.Time{}, n.replica, "leads", board.Green)
	case released:
		s.row(n.At, time.Time{}, n.replica, "releases", board.Plain)
	case lost:
		s.row(n.At, time.Time{}, n.replica, "loses", board.Red)
	}
}

// missed shows the ticks before that instant that nobody has run.
func (s *show) missed(before time.Time) {
	if s.due.IsZero() {
		return
	}
	for at := s.due.Add(every); at.Before(before); at = at.Add(every) {
		why := "missed: nobody leads"
		if s.history.ledAt(at) {
			why = "missed"
		}
		s.row(at, at, 0, why, board.Yellow)
		s.due = at
	}
}

// summary is the account at the end.
func (s *show) summary(sum summary) {
	fmt.Println()
	s.Line("ticks run", sum.ticks, board.Plain, "")
	s.Line("doubled", len(sum.doubled), board.Alarm(len(sum.doubled)), "run by two replicas, or twice by one")
	s.Line("overlapped", len(sum.overlapped), board.Alarm(len(sum.overlapped)), "begun while another replica was still at work")
	s.Line("missed", len(sum.unled), board.Plain, "while nobody led")
	if len(sum.missed) > 0 {
		s.Line("missed", len(sum.missed), board.Yellow, "although somebody led: this machine was too busy for the cron")
	}
	if sum.unfinished > 0 {
		s.Line("cut short", sum.unfinished, board.Yellow, "runs that were under way at the kill")
	}
	if s.unguarded {
		return
	}
	s.took("takeover", sum.takeover, fmt.Sprintf(
		"from SIGKILL to the next leader (TTL %v: the lease of a dead leader has to run out)", s.ttl))
	drained := "(the run under way was finished first)"
	if !sum.drained {
		drained = s.Paint("before the run under way was finished", board.Red)
	}
	s.took("handover", sum.handover, "from SIGTERM to the next leader "+drained)
	if sum.ok() {
		fmt.Printf("\n%s\n", s.Paint("No tick ran twice.", board.Green))
	}
}

func (s *show) took(what string, d time.Duration, text string) {
	if d == 0 {
		fmt.Printf("%-10s  %s\n", what, s.Paint("did not happen", board.Red))
		return
	}
	fmt.Printf("%-10s  %5.2f s  %s\n", what, d.Seconds(), text)
}
