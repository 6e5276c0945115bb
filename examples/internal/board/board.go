// Package board shows a person what replicas do, one line for each thing that
// happens, and an account at the end.
package board

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Board is standard output.
type Board struct {
	colour bool
	began  time.Time
}

// New returns a board whose time begins now.
func New() *Board {
	b := &Board{began: time.Now()}
	// Colour is for terminals, and for those who have not asked to do without:
	// https://no-color.org.
	if info, err := os.Stdout.Stat(); err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		b.colour = info.Mode()&os.ModeCharDevice != 0
	}
	return b
}

// The colours, as terminals number them.
const (
	Plain  = ""
	Bold   = "1"
	Dim    = "2"
	Red    = "1;31"
	Green  = "1;32"
	Yellow = "33"
)

// Paint returns text in that colour, if colours are shown.
func (b *Board) Paint(text, colour string) string {
	if !b.colour || colour == Plain {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Head shows the heads of the columns: the time, that of due, and the replicas,
// each so wide.
func (b *Board) Head(due string, replicas, width int) {
	var s strings.Builder
	fmt.Fprintf(&s, "%8s  %-8s  ", "time", due)
	for i := range replicas {
		fmt.Fprintf(&s, "%-*s", width, fmt.Sprintf("replica %d", i+1))
	}
	fmt.Println(b.Paint(strings.TrimRight(s.String(), " "), Dim))
}

// Row shows one thing that happened to a replica, indented so far. due is the tick
// that it is about, zero for none.
func (b *Board) Row(at, due time.Time, indent int, text, colour string) {
	tick := ""
	if !due.IsZero() {
		tick = due.Local().Format(time.TimeOnly)
	}
	fmt.Printf("%6.1f s  %-8s  %s%s\n", at.Sub(b.began).Seconds(), tick, strings.Repeat(" ", indent), b.Paint(text, colour))
}

// Line is one number of the account.
func (b *Board) Line(what string, n int, colour, text string) {
	fmt.Println(strings.TrimRight(fmt.Sprintf("%-10s  %s    %s", what, b.Paint(fmt.Sprintf("%5d", n), colour), text), " "))
}

// Alarm is the colour of a number that must be zero.
func Alarm(n int) string {
	if n > 0 {
		return Red
	}
	return Green
}
