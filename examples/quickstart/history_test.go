package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at is the instant that many seconds into the history.
func at(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// told makes a history of what replicas report, with the signals of a good one:
// replica 0 is killed at 2.5, replica 1 told to stop at 7.1.
func told(reports ...news) *history {
	h := &history{}
	for _, n := range reports {
		if h.kill.at.IsZero() && n.At.After(at(2.5)) {
			h.kill = blow{0, at(2.5)}
			h.endTerm(0, h.kill.at)
		}
		if h.stop.at.IsZero() && n.At.After(at(7.1)) {
			h.stop = blow{1, at(7.1)}
			h.endTerm(1, h.stop.at)
		}
		h.add(n.replica, n.report)
	}
	return h
}

func reported(replica int, k kind, when float64) news {
	return news{replica, report{Kind: k, At: at(when)}}
}

// ran is a run for the tick at due, that took 0.2 s.
func ran(replica int, due float64) []news {
	return []news{
		{replica, report{Kind: begins, At: at(due + 0.001), Due: at(due)}},
		// As JSON brings it: the same instant in another zone.
		{replica, report{Kind: ends, At: at(due + 0.201), Due: at(due).UTC()}},
	}
}

// good is a history in which all went well.
func good() []news {
	var all []news
	add := func(more ...news) { all = append(all, more...) }
	add(reported(0, leads, 0.4))
	add(ran(0, 1)...)
	add(ran(0, 2)...)
	add(reported(1, leads, 5.2)) // nobody for the ticks 3, 4 and 5
	add(ran(1, 6)...)
	add(ran(1, 7)...) // told to stop meanwhile
	add(reported(1, released, 7.21), reported(2, leads, 7.3))
	add(ran(2, 8)...)
	add(reported(2, released, 8.3))
	return all
}

func TestTheSummaryAccountsForEachTick(t *testing.T) {
	sum := told(good()...).summarize(time.Second)
	require.True(t, sum.ok())
	require.Equal(t, 5, sum.ticks)
	require.Empty(t, sum.doubled)
	require.Empty(t, sum.overlapped)
	require.Equal(t, []time.Time{at(3), at(4), at(5)}, sum.unled)
	require.Empty(t, sum.missed)
	require.Zero(t, sum.unfinished)
	require.InDelta(t, 2.7, sum.takeover.Seconds(), 1e-6)
	require.InDelta(t, 0.2, sum.handover.Seconds(), 1e-6)
}

func TestTheSummaryNoticesWhatWentWrong(t *testing.T) {
	without := func(all []news, drop func(n news) bool) (left []news) {
		for _, n := range all {
			if !drop(n) {
				left = append(left, n)
			}
		}
		return left
	}
	for _, c := range []struct {
		name    string
		reports []news
		check   func(t *testing.T, sum summary)
	}{
		{"a tick that two replicas ran", append(good(), ran(1, 8)...), func(t *testing.T, sum summary) {
			require.Equal(t, []time.Time{at(8)}, sum.doubled)
			require.Equal(t, 5, sum.ticks)
		}},
		{"a tick that one replica ran twice, one after the other", append(good(),
			news{2, report{Kind: begins, At: at(8.25), Due: at(8)}}), func(t *testing.T, sum summary) {
			require.Equal(t, []time.Time{at(8)}, sum.doubled)
			require.Empty(t, sum.overlapped)
		}},
		{"a tick that three replicas ran, once", append(append(good(), ran(0, 8)...), ran(1, 8)...), func(t *testing.T, sum summary) {
			require.Equal(t, []time.Time{at(8)}, sum.doubled)
		}},
		{"a run that began while another replica was at work", append(good(),
			news{0, report{Kind: begins, At: at(7.1), Due: at(5)}},
			news{0, report{Kind: ends, At: at(7.15), Due: at(5)}}), func(t *testing.T, sum summary) {
			require.Equal(t, []time.Time{at(5)}, sum.overlapped)
			require.Empty(t, sum.doubled)
		}},
		{"a leader that was replaced while it was at work", without(good(), func(n news) bool {
			return n.replica == 1 && n.Kind == ends && n.Due.Equal(at(7))
		}), func(t *testing.T, sum summary) {
			require.False(t, sum.drained)
			require.Equal(t, 1, sum.unfinished)
		}},
		{"no takeover", without(good(), func(n news) bool { return n.At.After(at(2.5)) }), func(t *testing.T, sum summary) {
			require.Zero(t, sum.takeover)
		}},
		{"no handover", without(good(), func(n news) bool { return n.replica == 2 }), func(t *testing.T, sum summary) {
			require.Zero(t, sum.handover)
		}},
		{"nothing at all", nil, func(t *testing.T, sum summary) { require.Zero(t, sum.ticks) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			sum := told(c.reports...).summarize(time.Second)
			require.False(t, sum.ok())
			c.check(t, sum)
		})
	}
}

func TestATickMissedByALeaderIsToldApart(t *testing.T) {
	var all []news
	for _, n := range good() {
		if !n.Due.Equal(at(6)) {
			all = append(all, n)
		}
	}
	sum := told(all...).summarize(time.Second)
	require.True(t, sum.ok(), "a lease does not promise that everything runs")
	require.Equal(t, []time.Time{at(6)}, sum.missed)
	require.Equal(t, []time.Time{at(3), at(4), at(5)}, sum.unled)
}
