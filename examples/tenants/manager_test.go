package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newManager returns a manager whose tenants' work lasts until it is told to
// stop, and then for that long.
func newManager(store joblease.Store, name string, working *atomic.Int64, stopping time.Duration) *Manager {
	cfg := joblease.Config{Logger: slog.New(slog.DiscardHandler)}
	return NewManager(store, name, cfg, func(string) joblease.Scheduler {
		return joblease.Func(func(ctx context.Context) error {
			working.Add(1)
			defer working.Add(-1)
			<-ctx.Done()
			time.Sleep(stopping)
			return nil
		})
	})
}

func TestRemoveReturnsWhenTheWorkHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Int64
		m := newManager(storetest.NewMemory(), "A", &working, 10*time.Second)
		require.NoError(t, m.Add("acme"))
		require.NoError(t, m.Add("acme"), "adding again does nothing")
		time.Sleep(time.Second) // more than the head start
		require.EqualValues(t, 1, working.Load())
		require.Equal(t, []string{"acme"}, m.Led())

		told := time.Now()
		require.NoError(t, m.Remove("acme"))
		require.Zero(t, working.Load())
		require.GreaterOrEqual(t, time.Since(told), 10*time.Second)
		require.Empty(t, m.Led())
		require.NoError(t, m.Remove("acme"), "removing again does nothing")
		require.NoError(t, m.Close())
	})
}

func TestCloseStopsAllTenantsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Int64
		m := newManager(storetest.NewMemory(), "A", &working, 10*time.Second)
		for i := range 20 {
			require.NoError(t, m.Add(fmt.Sprint("tenant ", i)))
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 20, working.Load())

		told := time.Now()
		require.NoError(t, m.Close())
		require.Zero(t, working.Load())
		require.Less(t, time.Since(told), 11*time.Second)
		require.Error(t, m.Add("late"))
		require.NoError(t, m.Remove("tenant 1"), "there is nothing to remove")
		require.NoError(t, m.Close(), "closing again does nothing")
	})
}

func TestShedHandsTenantsToAReplicaThatCameLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Int64
		store := storetest.NewMemory()
		a, b := newManager(store, "A", &working, 0), newManager(store, "B", &working, 0)
		for i := range 4 {
			require.NoError(t, a.Add(fmt.Sprint("tenant ", i)))
		}
		time.Sleep(time.Second)
		for i := range 4 {
			require.NoError(t, b.Add(fmt.Sprint("tenant ", i)))
		}
		time.Sleep(time.Second)
		require.Len(t, a.Led(), 4)

		require.NoError(t, a.Shed(t.Context(), 1))
		require.Len(t, a.Led(), 1)
		time.Sleep(10 * time.Second) // a renewal of B's looks, and less than a TTL
		require.Len(t, b.Led(), 3)
		require.NoError(t, a.Shed(t.Context(), 1), "nothing is left to shed")
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.Zero(t, working.Load())
	})
}

func TestTenantsComeAndGoInManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Int64
		m := newManager(storetest.NewMemory(), "A", &working, time.Millisecond)
		var users sync.WaitGroup
		for i := range 8 {
			users.Go(func() {
				for round := range 20 {
					name := fmt.Sprint("tenant ", (i+round)%4)
					_ = m.Add(name) // fails once the manager is closed
					time.Sleep(time.Duration(i*round) * 10 * time.Millisecond)
					m.Led()
					_ = m.Remove(name)
				}
				_ = m.Close()
			})
		}
		users.Wait()
		require.Zero(t, working.Load())
	})
}

func TestHeadStartsSpreadTenants(t *testing.T) {
	first := make(map[string]int)
	for i := range 3000 {
		winner, least := "", time.Hour
		for _, replica := range []string{"pod-0", "pod-1", "pod-2"} {
			if d := headStart(replica, fmt.Sprint("tenant-", i)); d < least {
				winner, least = replica, d
			}
		}
		require.Less(t, least, time.Second)
		first[winner]++
	}
	for replica, n := range first {
		require.InDelta(t, 1000, n, 150, replica)
	}
}
