package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/joblease/joblease/examples/internal/board"
	"github.com/joblease/joblease/examples/internal/fleet"
)

// play starts the replicas, sends the signals, and returns what was seen.
func (s *show) play(ctx context.Context) (summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fleet, err := fleet.Launch(ctx, replicas, func(i int) []string {
		lease := "quickstart"
		if s.unguarded {
			lease += "/" + strconv.Itoa(i+1)
		}
		return []string{"-database", s.database, "-table", s.table, "-lease", lease, "-ttl", s.ttl.String(),
			fmt.Sprintf("-v=%t", s.verbose)}
	}, read)
	s.fleet = fleet
	if err == nil {
		err = s.act(ctx)
	}
	if err == nil {
		err = fleet.StopAll()
	}
	if err == nil {
		err = s.watch(ctx, func(news) bool { return false }) // to the end
	}
	if errors.Is(err, errAllEnded) {
		err = nil
	}
	cancel() // without an error they have ended
	return s.history.summarize(every), errors.Join(err, fleet.Wait())
}

// act is the plot.
func (s *show) act(ctx context.Context) error {
	first, err := s.runs(ctx, ends)
	if err != nil || s.unguarded {
		return err
	}
	s.history.kill = s.strike(first, "SIGKILL")
	if err := s.fleet.Kill(first); err != nil {
		return err
	}
	// Told to stop at the begin of a run, so that the run is seen to be finished
	// before the lease goes on.
	second, err := s.runs(ctx, begins)
	if err != nil {
		return err
	}
	s.history.stop = s.strike(second, "SIGTERM")
	if err := s.fleet.Stop(second); err != nil {
		return err
	}
	_, err = s.runs(ctx, ends)
	return err
}

// strike notes that a replica's term ends now.
func (s *show) strike(replica int, name string) blow {
	at := time.Now()
	s.history.endTerm(replica, at)
	s.told[replica] = true
	s.row(at, time.Time{}, replica, name, board.Red)
	return blow{replica, at}
}

// runs waits until one replica has reported that many runs, and returns which.
func (s *show) runs(ctx context.Context, k kind) (replica int, err error) {
	count := make(map[int]int)
	err = s.watch(ctx, func(n news) bool {
		if n.Kind == k {
			count[n.replica]++
		}
		replica = n.replica
		return count[n.replica] == runsEach
	})
	return replica, err
}

// errAllEnded means that no replica is left.
var errAllEnded = errors.New("all replicas have ended")

// watch shows what the replicas report, until enough returns true.
func (s *show) watch(ctx context.Context, enough func(news) bool) error {
	// Longer than any wait that ends well: a takeover, the runs, a stop.
	limit := 3*s.ttl + runsEach*every + fleet.StopTime
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("what was waited for has not happened within %v", limit))
	defer cancel()
	for {
		select {
		case n, ok := <-s.fleet.News:
			if !ok {
				return errAllEnded
			}
			s.history.add(n.replica, n.report)
			s.news(n)
			if enough(n) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
