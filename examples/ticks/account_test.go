package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at is the instant that many seconds into the account.
func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }

func begin(replica int, job string, due int) news {
	return news{replica, run{Job: job, Due: at(due)}}
}

func end(replica int, job string, due int) news {
	// As JSON brings it: the same instant in another zone.
	return news{replica, run{Job: job, Due: at(due).UTC(), End: true}}
}

func TestTheAccountTellsWhatBecameOfEachTick(t *testing.T) {
	good := []news{
		begin(0, "sweep", 1), end(0, "sweep", 1), begin(1, "bill", 0), end(1, "bill", 0),
		begin(2, "sweep", 2),                     // killed
		begin(0, "sweep", 5), end(0, "sweep", 5), // 3 and 4 are missed
		begin(2, "bill", 2), begin(1, "bill", 2), end(1, "bill", 2),
	}
	for _, c := range []struct {
		name    string
		more    []news
		doubled int
	}{
		{"all as promised", nil, 0},
		{"two replicas ran a tick", []news{begin(1, "sweep", 1)}, 1},
		{"one replica ran a tick twice", []news{begin(0, "sweep", 5), end(0, "sweep", 5)}, 1},
		{"a tick that is to be dropped was run again", []news{begin(1, "sweep", 2)}, 1},
		{"a run was done again that was not cut short", []news{begin(0, "bill", 0)}, 1},
		{"a run was done again by two", []news{begin(0, "bill", 2)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := account{killed: map[int]bool{2: true}}
			for _, n := range append(good, c.more...) {
				a.add(n)
			}
			s := a.summarize()
			require.Equal(t, c.doubled, s.doubled)
			if c.more == nil {
				require.Equal(t, summary{run: 4, dropped: 1, again: 1, missed: map[string]int{"sweep": 2, "bill": 0}}, s)
			}
		})
	}
}
