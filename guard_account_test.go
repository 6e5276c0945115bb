package joblease_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// jobRun is a row that a run has written.
type jobRun struct {
	Job   string
	Token int64 // of its claim
	Tick  time.Time
	Pid   int
	Began time.Time
	Ended *time.Time // nil if it was cut short
}

// blow is a signal that a replica got.
type blow struct {
	pid int
	at  time.Time
}

// ticksAccount is what became of the ticks.
type ticksAccount struct {
	ticks, cut, again, notBegun, dropped, unanswered, unfinished int

	doubled, overlapped, missed, unexplained []string
}

func (f *guards) account(all []jobRun) (a ticksAccount) {
	slices.SortFunc(all, func(x, y jobRun) int {
		return cmp.Or(strings.Compare(x.Job, y.Job), cmp.Compare(x.Token, y.Token))
	})
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(r jobRun) bool { return r.Job != all[0].Job })
		if n < 0 {
			n = len(all)
		}
		f.accountJob(&a, all[:n])
		all = all[n:]
	}
	return a
}

// accountJob takes the runs of one job, in the order of their claims.
func (f *guards) accountJob(a *ticksAccount, runs []jobRun) {
	each, interval := strings.HasPrefix(runs[0].Job, everyTick), mayDropInterval
	if each {
		interval = everyTickInterval
	}
	for i, r := range runs {
		text := fmt.Sprintf("%s at %s, token %d", r.Job, r.Tick.Format("05.000000"), r.Token)
		if r.Ended == nil {
			a.cut++
		}
		if i == 0 {
			a.ticks++
			continue
		}
		b := runs[i-1]
		a.notBegun += int(r.Token - b.Token - 1)
		switch {
		case r.Token == b.Token, r.Tick.Before(b.Tick), r.Tick.Equal(b.Tick) && (b.Ended != nil || !each):
			a.doubled = append(a.doubled, text)
		case r.Tick.Equal(b.Tick):
			a.again++
			continue
		default:
			a.ticks++
			if each && b.Ended == nil {
				a.missed = append(a.missed, fmt.Sprintf("%s at %s, never finished", b.Job, b.Tick.Format("05.000000")))
			}
		}
		if b.Ended != nil && b.Ended.After(r.Began) {
			a.overlapped = append(a.overlapped, text)
		}
		for m := b.Tick.Add(interval); m.Before(r.Tick); m = m.Add(interval) {
			text := fmt.Sprintf("%s at %s, between tokens %d and %d", r.Job, m.Format("05.000000"), b.Token, r.Token)
			switch {
			case each:
				a.missed = append(a.missed, text)
			case f.mayBeDropped(m, b, r):
				a.dropped++
			case f.said[unanswered(r.Job, m)] > 0:
				a.unanswered++
			default:
				a.unexplained = append(a.unexplained, text)
			}
		}
	}
	if last := runs[len(runs)-1]; each && last.Ended == nil {
		a.unfinished++
	}
}

// mayBeDropped reports whether there was a reason for not running tick, which came
// between the runs before and after.
func (f *guards) mayBeDropped(tick time.Time, before, after jobRun) bool {
	const slack = mayDropInterval / 2 // for the release, and for clocks that are read one after the other
	if before.Ended == nil || before.Ended.Add(slack).After(tick) || after.Token > before.Token+1 {
		return true // cut short, or under way, or claimed by one that died before it began
	}
	if f.last[released(before.Job, before.Token)].After(tick) {
		return true // its lease was still held
	}
	if f.down[0].Add(-slack).Before(tick) && tick.Before(f.down[1].Add(slack)) {
		return true
	}
	// Its replica was hit between the end of the run and the release.
	return slices.ContainsFunc(f.blows, func(b blow) bool {
		return b.pid == before.Pid && b.at.Add(slack).After(before.Began) && b.at.Before(before.Ended.Add(slack))
	})
}

// The account is only worth something if it notices what goes wrong.
func TestTheAccountOfTicksNoticesWhatGoesWrong(t *testing.T) {
	at := func(slots float64) time.Time {
		return epoch.Add(time.Duration(slots * float64(mayDropInterval)))
	}
	ran := func(token int64, slot, end float64) jobRun {
		ended := at(end)
		return jobRun{Token: token, Tick: at(slot), Pid: 1, Began: at(slot), Ended: &ended}
	}
	cut := func(token int64, slot, began float64) jobRun {
		return jobRun{Token: token, Tick: at(slot), Pid: 1, Began: at(began)}
	}
	for name, c := range map[string]struct {
		kind  string
		blows []blow
		runs  []jobRun
		want  string // doubled, overlapped, missed, dropped, unexplained, unfinished
	}{
		"all is well":                     {mayDrop, nil, []jobRun{ran(1, 0, 0.1), ran(2, 1, 1.1)}, "0 0 0 0 0 0"},
		"run twice":                       {mayDrop, nil, []jobRun{ran(1, 0, 0.1), ran(2, 0, 0.2)}, "1 1 0 0 0 0"},
		"run twice under one claim":       {mayDrop, nil, []jobRun{ran(1, 0, 0.1), ran(1, 1, 1.1)}, "1 0 0 0 0 0"},
		"an old tick":                     {mayDrop, nil, []jobRun{ran(1, 1, 1.1), ran(2, 0, 1.2)}, "1 1 0 0 0 0"},
		"run again, not to be":            {mayDrop, nil, []jobRun{cut(1, 0, 0), ran(2, 0, 4)}, "1 0 0 0 0 0"},
		"overlap":                         {mayDrop, nil, []jobRun{ran(1, 0, 1.1), ran(2, 1, 1.2)}, "0 1 0 0 0 0"},
		"dropped in a long run":           {mayDrop, nil, []jobRun{ran(1, 0, 1.1), ran(2, 2, 2.1)}, "0 0 0 1 0 0"},
		"dropped after a run cut short":   {mayDrop, nil, []jobRun{cut(1, 0, 0), ran(2, 4, 4.1)}, "0 0 0 3 0 0"},
		"dropped by a claim not begun":    {mayDrop, nil, []jobRun{ran(1, 0, 0.1), ran(3, 2, 2.1)}, "0 0 0 1 0 0"},
		"dropped by a kill at the end":    {mayDrop, []blow{{1, at(0.2)}}, []jobRun{ran(1, 0, 0.1), ran(2, 2, 2.1)}, "0 0 0 1 0 0"},
		"dropped by a kill of another":    {mayDrop, []blow{{2, at(0.2)}}, []jobRun{ran(1, 0, 0.1), ran(2, 2, 2.1)}, "0 0 0 0 1 0"},
		"dropped by a kill long before":   {mayDrop, []blow{{1, at(-3)}}, []jobRun{ran(1, 0, 0.1), ran(2, 2, 2.1)}, "0 0 0 0 1 0"},
		"missed, not to be":               {everyTick, nil, []jobRun{cut(1, 0, 0), ran(2, 0, 0.1), ran(3, 0.4, 0.5)}, "0 0 1 0 0 0"},
		"run again":                       {everyTick, nil, []jobRun{cut(1, 0, 0), ran(2, 0, 0.1), ran(3, 0.2, 0.3)}, "0 0 0 0 0 0"},
		"run again, without need":         {everyTick, nil, []jobRun{ran(1, 0, 0.1), ran(2, 0, 0.1)}, "1 1 0 0 0 0"},
		"never finished, and passed over": {everyTick, nil, []jobRun{cut(1, 0, 0), ran(2, 0.2, 0.3)}, "0 0 1 0 0 0"},
		"not finished yet":                {everyTick, nil, []jobRun{ran(1, 0, 0.1), cut(2, 0.2, 0.2)}, "0 0 0 0 0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &guards{blows: c.blows}
			for i := range c.runs {
				c.runs[i].Job = c.kind + "0"
			}
			a := f.account(c.runs)
			require.Equal(t, c.want, fmt.Sprintln(len(a.doubled), len(a.overlapped), len(a.missed),
				a.dropped, len(a.unexplained), a.unfinished)[:len(c.want)])
		})
	}
}
