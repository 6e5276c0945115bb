package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// show is what a person sees of it, one line for each thing that happens.
type show struct {
	options
	colour bool
	began  time.Time

	fleet   *fleet
	history history
	told    [replicas]bool // to end
	due     time.Time      // of the last tick shown
}

func newShow(o options) *show {
	s := &show{options: o, began: time.Now()}
	// Colour is for terminals, and for those who have not asked to do without:
	// https://no-color.org.
	if info, err := os.Stdout.Stat(); err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		s.colour = info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// The colours, as terminals number them.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	green  = "1;32"
	yellow = "33"
)

func (s *show) paint(text, colour string) string {
	if !s.colour || colour == plain {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// column is the width of a replica's column.
const column = 11

func (s *show) title(where string) {
	held := fmt.Sprintf("one lease of %v", s.ttl)
	if s.unguarded {
		held = "no lease in common"
	}
	fmt.Printf("%d replicas of a service, a cron job due every second, %s, in %s\n\n",
		replicas, s.paint(held, bold), where)
	var b strings.Builder
	fmt.Fprintf(&b, "%8s  %-8s  ", "time", "tick")
	for i := range replicas {
		fmt.Fprintf(&b, "%-*s", column, fmt.Sprintf("replica %d", i+1))
	}
	fmt.Println(s.paint(strings.TrimRight(b.String(), " "), dim))
}

// row shows one thing that happened to a replica.
func (s *show) row(at, due time.Time, replica int, text, colour string) {
	tick := ""
	if !due.IsZero() {
		tick = due.Local().Format(time.TimeOnly)
	}
	fmt.Printf("%6.1f s  %-8s  %s%s\n", at.Sub(s.began).Seconds(), tick,
		strings.Repeat(" ", column*replica), s.paint(text, colour))
}

func (s *show) news(n news) {
	switch n.Kind {
	case begins:
		s.missed(n.Due)
		s.row(n.At, n.Due, n.replica, "runs", plain)
		if n.Due.After(s.due) {
			s.due = n.Due
		}
	case ends:
		if s.told[n.replica] {
			s.row(n.At, n.Due, n.replica, "finishes", plain)
		}
	case leads:
		s.missed(n.At)
		s.row(n.At, time.Time{}, n.replica, "leads", green)
	case released:
		s.row(n.At, time.Time{}, n.replica, "releases", plain)
	case lost:
		s.row(n.At, time.Time{}, n.replica, "loses", red)
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
		s.row(at, at, 0, why, yellow)
		s.due = at
	}
}

// summary is the account at the end.
func (s *show) summary(sum summary) {
	fmt.Println()
	s.line("ticks run", sum.ticks, plain, "")
	s.line("doubled", len(sum.doubled), alarm(sum.doubled), "run by two replicas, or twice by one")
	s.line("overlapped", len(sum.overlapped), alarm(sum.overlapped), "begun while another replica was still at work")
	s.line("missed", len(sum.unled), plain, "while nobody led")
	if len(sum.missed) > 0 {
		s.line("missed", len(sum.missed), yellow, "although somebody led: this machine was too busy for the cron")
	}
	if sum.unfinished > 0 {
		s.line("cut short", sum.unfinished, yellow, "runs that were under way at the kill")
	}
	if s.unguarded {
		return
	}
	s.took("takeover", sum.takeover, fmt.Sprintf(
		"from SIGKILL to the next leader (TTL %v: the lease of a dead leader has to run out)", s.ttl))
	drained := "(the run under way was finished first)"
	if !sum.drained {
		drained = s.paint("before the run under way was finished", red)
	}
	s.took("handover", sum.handover, "from SIGTERM to the next leader "+drained)
	if sum.ok() {
		fmt.Printf("\n%s\n", s.paint("No tick ran twice.", green))
	}
}

// alarm is the colour of a number that must be zero.
func alarm(ticks []time.Time) string {
	if len(ticks) > 0 {
		return red
	}
	return green
}

func (s *show) line(what string, n int, colour, text string) {
	fmt.Println(strings.TrimRight(fmt.Sprintf("%-10s  %s    %s", what, s.paint(fmt.Sprintf("%5d", n), colour), text), " "))
}

func (s *show) took(what string, d time.Duration, text string) {
	if d == 0 {
		fmt.Printf("%-10s  %s\n", what, s.paint("did not happen", red))
		return
	}
	fmt.Printf("%-10s  %5.2f s  %s\n", what, d.Seconds(), text)
}
