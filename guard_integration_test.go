package joblease_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/pgstore"
	"github.com/stretchr/testify/require"
)

// mortal is the store of a replica that can be killed.
type mortal struct {
	joblease.Store
	dead atomic.Bool
}

func (s *mortal) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	if s.dead.Load() {
		return joblease.Grant{}, errCut
	}
	return s.Store.Acquire(ctx, c)
}

func (s *mortal) Renew(ctx context.Context, g joblease.Grant) error {
	if s.dead.Load() {
		return errCut
	}
	return s.Store.Renew(ctx, g)
}

func (s *mortal) Release(ctx context.Context, g joblease.Grant) error {
	if s.dead.Load() {
		return errCut
	}
	return s.Store.Release(ctx, g)
}

// On PostgreSQL: replicas die in the middle of their runs, before and after the
// commit, and what the runs write is there once for each tick.
func TestWithDoneTheEffectsOfEachTickHappenExactlyOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	db, _ := cluster(t)
	pool := db.Pool(t)
	_, err := pool.Exec(t.Context(), `CREATE TABLE effect (tick timestamptz NOT NULL)`)
	require.NoError(t, err)
	const interval = 200 * time.Millisecond
	var calls, interrupted atomic.Int64
	var replicas sync.WaitGroup
	start := func() (stop, kill func()) {
		store, err := pgstore.New(pool, pgstore.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { store.Close() })
		cfg := quiet("")
		cfg.TTL = 500 * time.Millisecond
		s := &mortal{Store: store}
		g, err := joblease.NewGuard(s, cfg)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		dead, die := context.WithCancel(context.Background())
		nap := func() error {
			select {
			case <-time.After(rand.N(60 * time.Millisecond)):
				return nil
			case <-dead.Done():
				return dead.Err()
			}
		}
		write := func(ctx context.Context) error {
			grant, _ := joblease.GrantFrom(ctx)
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
			if _, err := tx.Exec(ctx, `INSERT INTO effect VALUES ($1)`, grant.Tick); err != nil {
				return err
			}
			if err := nap(); err != nil {
				return err
			}
			if err := store.Done(ctx, tx, grant); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}
		replicas.Go(func() {
			defer stop()
			_ = g.Run(ctx, joblease.Job{
				Name: "job", Schedule: joblease.Interval(interval, 0), Missed: joblease.MaxMissed, Again: true,
				Run: func(ctx context.Context) error {
					calls.Add(1)
					err := write(ctx)
					if err == nil {
						err = nap()
					}
					if err != nil {
						interrupted.Add(1)
					}
					return err
				},
			})
		})
		return stop, func() { s.dead.Store(true); die(); stop() }
	}
	var stops, kills []func()
	join := func() {
		stop, kill := start()
		stops, kills = append(stops, stop), append(kills, kill)
	}
	join()
	join()
	for range 8 {
		time.Sleep(500*time.Millisecond + rand.N(interval))
		join()
		kills[0]()
		stops, kills = stops[1:], kills[1:]
	}
	time.Sleep(2 * time.Second) // to catch up
	for _, stop := range stops {
		stop()
	}
	replicas.Wait()

	var ticks, effects int64
	var first, last time.Time
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT count(DISTINCT tick), count(*), min(tick), max(tick) FROM effect`).Scan(&ticks, &effects, &first, &last))
	t.Logf("%d ticks, %d calls, %d interrupted", ticks, calls.Load(), interrupted.Load())
	require.Equal(t, ticks, effects, "no tick's effects twice")
	require.Equal(t, int64(last.Sub(first)/interval)+1, ticks, "and none's lost")
	require.GreaterOrEqual(t, ticks, int64(20))
}
