package interop_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// losses are what can happen to the row of a lease under its holder.
var losses = []string{
	"DELETE FROM joblease_leases",
	// Another had it, and has released it.
	`UPDATE joblease_leases SET claim = NULL, holder = '', version = version + 1, token = token + 1, expires_at_us = 0`,
}

// Another had it, and is gone. Nobody knows since when, so it costs a TTL.
const theftSQL = `UPDATE joblease_leases SET claim = randomblob(16), version = version + 1, token = token + 1, expires_at_us = 0`

func TestFiveHundredTermsLeaveNothingBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	store, db := openSQLite(t, file)
	_, operator := openSQLite(t, file)
	operator.SetMaxOpenConns(1)
	_, err := operator.ExecContext(t.Context(), "PRAGMA busy_timeout = 10000")
	require.NoError(t, err)
	before := goleak.IgnoreCurrent()
	cfg := quiet("a", time.Second)
	cfg.RenewEvery = 4 * time.Millisecond // how long a loss goes unnoticed
	r := start(t, store, cfg, func(*replica) joblease.Scheduler { return joblease.Idle() })
	receive(t, r.began, "the first term")
	cycle := func(n int) {
		for i := range n {
			change := losses[i%len(losses)]
			if i%200 == 199 {
				change = theftSQL
			}
			_, err := operator.ExecContext(t.Context(), change)
			require.NoError(t, err)
			receive(t, r.began, "the next term")
		}
	}
	cycle(50) // so that what is made once is made
	db.SetMaxIdleConns(2)
	objects, goroutines := heapObjects(), runtime.NumGoroutine()
	cycle(500)
	require.Len(t, r.history(), 551)
	eventually(t, "only the goroutines of one term are left", func() bool { return runtime.NumGoroutine() <= goroutines })
	// Timers, contexts and subscriptions are objects on the heap. The test's own
	// records are in slices, and add none.
	require.Less(t, int64(heapObjects())-int64(objects), int64(250), "less than one object for two terms")
	require.NoError(t, r.shutdown())
	store.Close()
	require.NoError(t, goleak.Find(before))
	require.Zero(t, db.Stats().InUse)
	require.LessOrEqual(t, db.Stats().OpenConnections, 2)
}

// heapObjects returns how many objects are reachable.
func heapObjects() uint64 {
	var m runtime.MemStats
	runtime.GC() // twice, for what a finalizer or a pool has held on to
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}

func TestFiftyTenantsComeAndGoWithoutATrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	_, db := openSQLite(t, file)
	baseline := goleak.IgnoreCurrent()
	for range 3 {
		store, err := sqlstore.NewSQLite(db, sqlstore.Options{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var tenants []*joblease.Supervisor
		for i := range 50 {
			sup, err := joblease.NewSupervisor(store, fmt.Sprint("tenant ", i), joblease.Idle(), quiet("a", 15*time.Second))
			require.NoError(t, err)
			tenants = append(tenants, sup)
			all.Go(func() {
				if err := sup.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for _, sup := range tenants {
			eventually(t, "each tenant leads", func() bool { return sup.IsLeader(ctx) == nil })
		}
		stop()
		all.Wait()
		records, err := store.List(t.Context())
		require.NoError(t, err)
		require.Len(t, records, 50)
		for _, r := range records {
			require.False(t, r.Held(), "%s is released", r.Name)
		}
		store.Close()
		require.NoError(t, goleak.Find(baseline))
		require.Zero(t, db.Stats().InUse)
	}
}

func TestAStoreThatIsClosedLeavesNoGoroutine(t *testing.T) {
	store, db := openSQLite(t, filepath.Join(t.TempDir(), "app.db"))
	other, err := sqlstore.NewSQLite(db, sqlstore.Options{})
	require.NoError(t, err)
	baseline := goleak.IgnoreCurrent()
	a := start(t, store, quiet("a", 15*time.Second), func(*replica) joblease.Scheduler { return joblease.Idle() })
	eventually(t, "a leads", a.leads)
	b := start(t, other, quiet("b", 15*time.Second), func(*replica) joblease.Scheduler { return joblease.Idle() })
	eventually(t, "b stands by", func() bool { return b.told(joblease.EventStandby) })
	other.Close() // under a candidate that watches
	require.NoError(t, b.shutdown())
	require.NoError(t, a.shutdown())
	store.Close()
	require.NoError(t, goleak.Find(baseline))
}
