package pgstore_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
)

// The application has its only connection for itself, for as long as it likes.
func TestALeaseIsRenewedWhileTheApplicationHogsItsPool(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	cfg := db.Config(t)
	cfg.MaxConns = 1
	pool := pgtest.NewPool(t, cfg)
	conn, err := pool.Acquire(bounded(t))
	require.NoError(t, err)
	defer conn.Release()

	s := open(t, pool, pgstore.Options{})
	w := s.Watch("a")
	defer w.Stop()
	g := acquired(t, s, "a", long)
	for range 10 {
		require.NoError(t, s.Renew(within(t, 2*time.Second), g))
	}
	eventually(t, "it listens", w.Live)
	require.NoError(t, s.Release(bounded(t), g))
}

func TestAThousandCandidatesForOneName(t *testing.T) {
	s, _ := migrated(t, pgstore.Options{})
	var granted, refused atomic.Int32
	concurrently(1000, func(int) {
		_, err := s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
		switch {
		case err == nil:
			granted.Add(1)
		case errors.Is(err, joblease.ErrHeld):
			refused.Add(1)
		default:
			t.Error(err)
		}
	})
	require.EqualValues(t, 1, granted.Load())
	require.EqualValues(t, 999, refused.Load())
}

func TestAThousandNamesFromOneProcess(t *testing.T) {
	s, _ := migrated(t, pgstore.Options{})
	concurrently(1000, func(i int) {
		g, err := s.Acquire(bounded(t), claim(fmt.Sprint(i), long, joblease.TakeExpired))
		if err != nil || g.Token != 1 {
			t.Error(g, err)
			return
		}
		if err := s.Renew(bounded(t), g); err != nil {
			t.Error(err)
		}
	})
	records, err := s.List(bounded(t))
	require.NoError(t, err)
	require.Len(t, records, 1000)
	for _, r := range records {
		require.EqualValues(t, 2, r.Version, "one grant, one renewal")
	}
}

func TestAHundredLeasesOverAPoolOfFour(t *testing.T) {
	const callTimeout = 3 * time.Second // of a TTL of 15 s
	_, db := migrated(t, pgstore.Options{})
	cfg := db.Config(t)
	cfg.MaxConns = 4
	s := open(t, pgtest.NewPool(t, cfg), pgstore.Options{SharePool: true})
	concurrently(100, func(i int) {
		g, err := s.Acquire(within(t, callTimeout), claim(fmt.Sprint(i), 15*time.Second, joblease.TakeExpired))
		for range 20 {
			if err == nil {
				err = s.Renew(within(t, callTimeout), g)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// Ten candidates that take, renew and release as fast as they can, in every
// isolation level that can be made the default. The token counts the terms.
func TestTenCandidatesAreExclusiveInEveryIsolationLevel(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			_, db := migrated(t, pgstore.Options{})
			cfg := db.Config(t)
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			pool := pgtest.NewPool(t, cfg)
			stores := make([]*pgstore.Store, 10)
			for i := range stores {
				stores[i] = open(t, pool, pgstore.Options{DisableNotify: true})
			}
			var holders, terms atomic.Int64
			deadline := time.Now().Add(time.Second)
			concurrently(len(stores), func(i int) {
				s := stores[i]
				for time.Now().Before(deadline) {
					g, err := s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
					if errors.Is(err, joblease.ErrHeld) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if holders.Add(1) != 1 {
						t.Error("two holders")
					}
					if n := terms.Add(1); n != g.Token {
						t.Errorf("token %d in term %d", g.Token, n)
					}
					err = s.Renew(bounded(t), g)
					holders.Add(-1)
					if err = errors.Join(err, s.Release(bounded(t), g)); err != nil {
						t.Error(err)
						return
					}
				}
			})
			t.Logf("%d terms", terms.Load())
			require.Greater(t, terms.Load(), int64(10))
		})
	}
}

func concurrently(n int, run func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { run(i) })
	}
	wg.Wait()
}

func TestNothingIsLeftOfAClosedStore(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	pool := db.Pool(t)
	use := func() {
		s := open(t, pool, pgstore.Options{})
		w := s.Watch("a")
		eventually(t, "it listens", w.Live)
		g := acquired(t, s, "a", long)
		lock := lockRow(t, db, "a")
		undecided(t, s.Renew(within(t, 50*time.Millisecond), g)) // a call that ends early
		require.NoError(t, lock.Rollback(bounded(t)))
		require.NoError(t, s.Release(bounded(t), g))
		w.Stop()
		w.Stop()
		s.Close()
	}
	use()
	ours := func() int { return strings.Count(stacks(), "joblease/pgstore.(*") }
	eventually(t, "its goroutines end", func() bool { return ours() <= 1 }) // the other store's
	before := runtime.NumGoroutine()
	for range 20 {
		use()
	}
	// pgx ends its own goroutines in its own time.
	eventually(t, "its goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	eventually(t, "its sessions end", func() bool { return storeSessions(t, db) <= 1 })
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
