package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
)

// watching returns a watch that is live and has no wake-up waiting.
func watching(t *testing.T, s *pgstore.Store, name string) joblease.Watch {
	t.Helper()
	w := s.Watch(name)
	t.Cleanup(w.Stop)
	live(t, s, w)
	return w
}

// live waits until w is live and receives what has been told until then.
func live(t *testing.T, s *pgstore.Store, w joblease.Watch) {
	t.Helper()
	eventually(t, "it listens", w.Live)
	// A watch begins and ends between two changes, never during one.
	s.Watch("another").Stop()
	select {
	case <-w.Wake:
	default:
	}
}

// awaken requires a wake-up.
func awaken(t *testing.T, w joblease.Watch) {
	t.Helper()
	select {
	case <-w.Wake:
	case <-time.After(patience):
		require.FailNow(t, "not woken")
	}
}

func TestAReleaseWakesACandidateAtOnce(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	candidate := open(t, db.Pool(t), pgstore.Options{})
	w, other := watching(t, candidate, "a"), watching(t, candidate, "b")
	g := acquired(t, s, "a", long)
	require.NoError(t, s.Release(bounded(t), g))
	awaken(t, w)
	require.Empty(t, other.Wake, "it is another lease's release")
	require.Empty(t, w.Wake, "one release, one wake-up")
}

func TestTheListeningConnectionIsSharedByAllWatchesAndStartedByTheFirst(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	before := db.Sessions(t)
	for range 10 {
		watching(t, s, "a")
	}
	require.Equal(t, before+1, db.Sessions(t))
}

const listeners = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"

func TestAListeningConnectionThatIsKilledIsMadeAgainAndWakesAll(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	w := watching(t, s, "a")
	for range 3 {
		require.True(t, pgtest.Scan[bool](t, db, "SELECT pg_terminate_backend(pid) "+listeners))
		awaken(t, w)
		live(t, s, w)
		g := acquired(t, s, "a", long)
		require.NoError(t, s.Release(bounded(t), g))
		awaken(t, w)
	}
}

// A connection that is dead without anybody having been told is found out by
// the pings that do not arrive.
func TestAListeningConnectionThatHearsNothingIsReplaced(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	p := newProxy(t, db)
	candidate := open(t, p.pool(t, db), pgstore.Options{})
	pgstore.ImpatientListener(candidate, 100*time.Millisecond, 500*time.Millisecond)
	w := watching(t, candidate, "a")
	p.freeze(false)
	awaken(t, w)
	live(t, candidate, w)
	g := acquired(t, s, "a", long)
	require.NoError(t, s.Release(bounded(t), g))
	awaken(t, w)
}

// That the server has taken LISTEN does not mean that anything arrives.
func TestAWatchIsNotLiveBeforeAPingHasArrived(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	cfg := db.Config(t)
	cfg.MaxConns = 1
	pool := pgtest.NewPool(t, cfg)
	s := open(t, pool, pgstore.Options{SharePool: true})
	pgstore.ImpatientListener(s, time.Hour, 100*time.Millisecond)
	conn, err := pool.Acquire(bounded(t)) // no ping can be sent
	require.NoError(t, err)
	defer conn.Release() // the pool cannot be closed without it
	w := s.Watch("a")
	defer w.Stop()
	for _, n := range []int{1, 0} {
		eventually(t, "it begins to listen, and gives up", func() bool {
			return pgtest.Scan[int](t, db, "SELECT count(*) "+listeners) == n
		})
	}
	require.Empty(t, w.Wake, "it was never live")
	conn.Release()
	eventually(t, "it listens", w.Live)
}

// A server that cannot be listened to, such as a standby, leaves candidates to
// look for themselves, and costs a bounded number of attempts.
func TestAWatchIsNotLiveWhereNothingCanBeHeard(t *testing.T) {
	server := pgtest.StartServer(t, pgtest.Options{})
	db := server.NewDB(t, "")
	s := open(t, db.Pool(t), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	w := watching(t, s, "a")
	server.Demote(t)
	awaken(t, w)
	require.False(t, w.Live())
	require.True(t, pgtest.Scan[bool](t, db, "SELECT pg_promote()"))
	eventually(t, "it listens again", w.Live)
}

func TestWithoutNotificationsThereIsNoListeningConnection(t *testing.T) {
	s, db := migrated(t, pgstore.Options{DisableNotify: true})
	w := s.Watch("a")
	defer w.Stop()
	require.False(t, w.Live())
	g := acquired(t, s, "a", long)
	require.NoError(t, s.Release(bounded(t), g))
	require.Empty(t, w.Wake)
	require.Zero(t, pgtest.Scan[int](t, db, "SELECT count(*) "+listeners))
}
