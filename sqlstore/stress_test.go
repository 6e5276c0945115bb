package sqlstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/stretchr/testify/require"
)

// fast is what makes thousands of commits affordable: no test here cuts the power.
const fast = wal + "&_pragma=synchronous(OFF)"

// crowd is how many goroutines, and how many leases, there are at once.
var crowd = 1000

func TestAThousandGoroutinesShareOneName(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	path := newFile(t)
	stores := []joblease.Store{newStore(t, open(t, path, fast)), newStore(t, open(t, path, fast))}
	const most = 10
	ctx := within(t, 60*time.Second)
	var inside, grants atomic.Int64
	var wg sync.WaitGroup
	failures := make(chan error, crowd)
	for i := range crowd {
		s := stores[i%2]
		wg.Go(func() {
			for grants.Load() < most {
				g, err := s.Acquire(ctx, claim("job", long))
				if errors.Is(err, joblease.ErrHeld) {
					continue
				}
				if err == nil {
					grants.Add(1)
					if n := inside.Add(1); n != 1 {
						err = fmt.Errorf("%d holders at once", n)
					}
					inside.Add(-1)
					err = errors.Join(err, s.Release(ctx, g))
				}
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failures)
	require.NoError(t, <-failures)
	require.GreaterOrEqual(t, grants.Load(), int64(most))
	require.Equal(t, grants.Load(), row(t, stores[0]).Token, "one token for each grant")
}

func TestAThousandNamesLiveInOneFile(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	path := newFile(t)
	stores := []joblease.Store{newStore(t, open(t, path, fast)), newStore(t, open(t, path, fast))}
	ctx := within(t, 60*time.Second)
	var wg sync.WaitGroup
	failures := make(chan error, crowd)
	for i := range crowd {
		s := stores[i%2]
		wg.Go(func() {
			g, err := s.Acquire(ctx, claim(fmt.Sprint("job ", i), long))
			if err == nil {
				err = errors.Join(s.Renew(ctx, g), s.Release(ctx, g))
			}
			if err != nil {
				failures <- err
			}
		})
	}
	wg.Wait()
	close(failures)
	require.NoError(t, <-failures)
	list, err := stores[0].List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, crowd)
	for _, r := range list {
		require.EqualValues(t, 1, r.Token, r.Name)
		require.EqualValues(t, 3, r.Version, r.Name)
		require.False(t, r.Held(), r.Name)
	}
}
