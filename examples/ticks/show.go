package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/joblease/joblease/examples/internal/board"
	"github.com/joblease/joblease/examples/internal/fleet"
)

// show is the plot, and what a person sees of it.
type show struct {
	*board.Board
	fleet   *fleet.Fleet[news]
	account account
}

// column is the width of a replica's column.
const column = 13

// play starts the replicas, sends the signals and takes the account.
func (s *show) play(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	s.fleet, err = fleet.Launch(ctx, replicas, func(int) []string {
		return []string{"-database", o.database, "-table", o.table}
	}, read)
	if err == nil {
		err = s.act(ctx)
	}
	if err == nil {
		err = s.fleet.StopAll()
	}
	if err == nil {
		err = s.watch(ctx, func(news) bool { return false }) // to the end
	}
	if errors.Is(err, errAllEnded) {
		err = nil
	}
	cancel() // without an error they have ended
	return errors.Join(err, s.fleet.Wait())
}

// act is the plot.
func (s *show) act(ctx context.Context) error {
	if err := s.finish(ctx, "sweep", 2); err != nil {
		return err
	}
	if _, err := s.kill(ctx, "sweep"); err != nil {
		return err
	}
	if err := s.finish(ctx, "sweep", 2); err != nil {
		return err
	}
	cut, err := s.kill(ctx, "bill")
	if err != nil {
		return err
	}
	if err := s.watch(ctx, func(n news) bool { return n.End && n.Job == "bill" && n.Due.Equal(cut.Due) }); err != nil {
		return err
	}
	return s.finish(ctx, "sweep", 1)
}

// finish waits until n runs of the job have ended.
func (s *show) finish(ctx context.Context, job string, n int) error {
	return s.watch(ctx, func(r news) bool {
		if r.End && r.Job == job {
			n--
		}
		return n == 0
	})
}

// kill waits for a run of the job and kills the replica in the middle of it.
func (s *show) kill(ctx context.Context, job string) (cut news, err error) {
	err = s.watch(ctx, func(n news) bool {
		cut = n
		return !n.End && n.Job == job
	})
	if err != nil {
		return cut, err
	}
	s.account.killed[cut.replica] = true
	s.Row(time.Now(), time.Time{}, column*cut.replica, "SIGKILL", board.Red)
	return cut, s.fleet.Kill(cut.replica)
}

// errAllEnded means that no replica is left.
var errAllEnded = errors.New("all replicas have ended")

// watch shows what the replicas report, until enough returns true.
func (s *show) watch(ctx context.Context, enough func(news) bool) error {
	// Longer than any wait that ends well.
	const limit = 20 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("what was waited for has not happened within %v", limit))
	defer cancel()
	for {
		select {
		case n, ok := <-s.fleet.News:
			if !ok {
				return errAllEnded
			}
			s.news(n)
			if enough(n) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// news shows the begin of a run.
func (s *show) news(n news) {
	t := s.account.add(n)
	if n.End {
		return
	}
	text, colour := n.Job, board.Plain
	switch {
	case s.account.doubled(t):
		text, colour = text+" TWICE", board.Red
	case len(t.by) > 1:
		text, colour = text+" again", board.Yellow
	}
	s.Row(n.At, n.Due, column*n.replica, text, colour)
}

// summary is the account at the end.
func (s *show) summary(sum summary) {
	fmt.Println()
	s.Line("ticks run", sum.run, board.Plain, "")
	s.Line("doubled", sum.doubled, board.Alarm(sum.doubled), "run by two replicas, or twice by one")
	s.Line("dropped", sum.dropped, board.Plain, "cut short by a kill: the policy of sweep")
	s.Line("run again", sum.again, board.Plain, "cut short by a kill: the policy of bill")
	s.Line("missed", sum.missed["sweep"], board.Plain, "of sweep, while the lease of a killed replica ran out")
	s.Line("missed", sum.missed["bill"], board.Alarm(sum.missed["bill"]), "of bill, which runs late what was missed")
}
