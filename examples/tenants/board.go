package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/joblease/joblease"
)

// board prints and keeps who leads what, as the events tell it.
type board struct {
	mu      sync.Mutex
	terms   map[string]joblease.Event // the last event of the newest term of each lease
	changed chan struct{}             // closed at the next change
}

func newBoard() *board {
	return &board{terms: make(map[string]joblease.Event), changed: make(chan struct{})}
}

func (b *board) title(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Printf("\n%s\n", text)
}

// observe is told by all replicas, each on a goroutine of its own. So the end of a
// term can be told after the begin of the next; the token tells which is newer.
func (b *board) observe(e joblease.Event) {
	var what string
	switch e.Kind {
	case joblease.EventAcquired:
		what = "leads"
	case joblease.EventReleased:
		what = "releases"
	case joblease.EventLost, joblease.EventOverrun, joblease.EventReleaseFailed, joblease.EventWorkFailed:
		what = e.Kind.String() + ":"
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Printf("  %s  %-10s  %s\n", e.Replica, what, strings.TrimPrefix(e.Lease, leasePrefix))
	if e.Token >= b.terms[e.Lease].Token {
		b.terms[e.Lease] = e
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until enough returns true. It is given how many tenants each replica
// leads, and all of them.
func (b *board) await(ctx context.Context, enough func(led map[string]int, total int) bool) error {
	for {
		b.mu.Lock()
		led, total := make(map[string]int), 0
		for _, e := range b.terms {
			if e.Kind == joblease.EventAcquired {
				led[e.Replica]++
				total++
			}
		}
		changed := b.changed
		b.mu.Unlock()
		if enough(led, total) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
