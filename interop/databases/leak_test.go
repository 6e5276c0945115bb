package databases_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The server of this binary runs until its end and has goroutines of its own, so
// each test looks for what it has added itself.

func TestLostTermsLeaveNothingBehindInPostgreSQL(t *testing.T) {
	srv := pgtest.New(t)
	pool := srv.Pool(t)
	store, err := pgstore.New(pool, pgstore.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(bounded(t)))

	require.NotZero(t, srv.Sessions(t)) // which opens the session of the test's own
	before := goleak.IgnoreCurrent()
	began := make(chan struct{}, 1)
	cfg := quiet(time.Second)
	cfg.RenewEvery = 5 * time.Millisecond // how long a loss goes unnoticed
	sup, err := joblease.NewSupervisor(store, "job", joblease.Func(func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		return nil
	}), cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sup.Run(ctx) }()
	t.Cleanup(stop)
	lose := func(n int) {
		for i := range n {
			select {
			case <-began:
			case <-time.After(patience):
				require.FailNow(t, "no term begins")
			}
			switch {
			case i%200 == 199: // another had it, and is gone: nobody knows since when, so it costs a TTL
				srv.Exec(t, `UPDATE joblease_leases SET claim = gen_random_uuid(), version = version + 1,
					token = token + 1, expires_at = now() - interval '1 second'`)
			case i%2 == 1: // another had it, and has released it
				srv.Exec(t, `UPDATE joblease_leases SET claim = NULL, holder = '', version = version + 1,
					token = token + 1, expires_at = now()`)
			default:
				srv.Exec(t, "DELETE FROM joblease_leases")
			}
		}
	}
	lose(50) // so that what is made once is made
	sessions := srv.Sessions(t)
	lose(500)
	require.LessOrEqual(t, srv.Sessions(t), sessions)
	require.LessOrEqual(t, sessions, 3, "two connections for calls, one that listens")
	<-began
	stop()
	require.NoError(t, <-done)
	store.Close()
	require.NoError(t, goleak.Find(before))
	eventually(t, "no session is left", func() bool { return srv.Sessions(t) == 0 })
	require.Equal(t, int64(551), sup.Status().Terms)
}

func TestFiftyTenantsAndTheirStoreLeaveNothingBehindInPostgreSQL(t *testing.T) {
	srv := pgtest.New(t)
	pool := srv.Pool(t)
	require.Zero(t, srv.Sessions(t)) // which opens the session of the test's own
	baseline := goleak.IgnoreCurrent()
	for range 3 {
		store, err := pgstore.New(pool, pgstore.Options{})
		require.NoError(t, err)
		require.NoError(t, store.Migrate(bounded(t)))
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		var leaders, standbys []*joblease.Supervisor
		run := func(i int) *joblease.Supervisor {
			sup, err := joblease.NewSupervisor(store, fmt.Sprint("tenant ", i), joblease.Idle(), quiet(15*time.Second))
			require.NoError(t, err)
			all.Go(func() {
				if err := sup.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return sup
		}
		for i := range 50 {
			leaders = append(leaders, run(i))
		}
		for _, sup := range leaders {
			eventually(t, "each tenant is led", func() bool { return sup.Status().State == joblease.Leading })
		}
		for i := range 10 {
			standbys = append(standbys, run(i)) // which make the store listen
		}
		for _, sup := range standbys {
			eventually(t, "each standby has asked", func() bool { return sup.Status().Holder != "" })
		}
		require.LessOrEqual(t, srv.Sessions(t), 3, "for sixty supervisors")
		stop()
		all.Wait()
		store.Close()
		require.NoError(t, goleak.Find(baseline))
		// A session ends a moment after its client has gone.
		eventually(t, "no session is left", func() bool { return srv.Sessions(t) == 0 })
	}
}
