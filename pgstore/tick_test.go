package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

// tick is an instant that has come.
var tick = time.Date(2020, 2, 29, 12, 0, 0, 123457000, time.UTC)

func tickClaim(name string, t joblease.Tick) joblease.Claim {
	c := claim(name, long, joblease.TakeExpired)
	c.Tick = t
	return c
}

// ticked returns the grant of tick on the lease "a".
func ticked(t *testing.T, s joblease.Store) joblease.Grant {
	t.Helper()
	g, err := s.Acquire(bounded(t), tickClaim("a", joblease.Tick{At: tick}))
	require.NoError(t, err)
	return g
}

// refused requires that t is refused as a tick, and returns the refusal.
func refused(t *testing.T, s joblease.Store, tick joblease.Tick) *joblease.TickError {
	t.Helper()
	_, err := s.Acquire(bounded(t), tickClaim("a", tick))
	var e *joblease.TickError
	require.ErrorAs(t, err, &e)
	return e
}

var again = joblease.Tick{At: tick, Again: true}

func TestLosingATickCostsTheDatabaseNothing(t *testing.T) {
	const attempts = 200
	for _, state := range []struct {
		name  string
		reach func(t *testing.T, s *pgstore.Store, db *pgtest.DB)
	}{
		{"live", func(*testing.T, *pgstore.Store, *pgtest.DB) {}},
		{"expired", func(t *testing.T, _ *pgstore.Store, db *pgtest.DB) { expire(t, db) }},
		{"released and finished", func(t *testing.T, s *pgstore.Store, db *pgtest.DB) {
			records, err := s.List(bounded(t))
			require.NoError(t, err)
			require.NoError(t, s.Release(bounded(t), joblease.Grant{Name: "a", Claim: records[0].Claim, Tick: tick, Finished: true}))
		}},
	} {
		t.Run(state.name, func(t *testing.T) {
			db := quiet(t)
			s := open(t, db.Pool(t), pgstore.Options{})
			require.NoError(t, s.Migrate(bounded(t)))
			ticked(t, s)
			state.reach(t, s, db)
			lost := []joblease.Claim{
				tickClaim("a", joblease.Tick{At: tick}),
				tickClaim("a", joblease.Tick{At: tick.Add(-time.Hour), Again: true}),
				tickClaim("a", joblease.Tick{At: time.Now().Add(time.Hour)}),
				tickClaim("no row", joblease.Tick{At: time.Now().Add(time.Hour)}),
			}
			lose := func() {
				for _, c := range lost {
					_, err := s.Acquire(bounded(t), c)
					require.ErrorAs(t, err, new(*joblease.TickError))
				}
			}
			lose() // the connection is made
			before := costs(t, db)
			for range attempts {
				lose()
			}
			require.Equal(t, before, costs(t, db))
			require.EqualValues(t, 1, pgtest.Scan[int64](t, db, "SELECT count(*) FROM "+migrations.Table))
		})
	}
}

// The rival's row is not in the snapshot of the statement that waits for it, so
// only the condition of the insert's conflict rule can see its tick.
func TestATickThatARivalInsertedMeanwhileIsRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		tick    joblease.Tick
		done    bool
		granted bool
	}{
		{"the same", joblease.Tick{At: tick}, false, false},
		{"older", joblease.Tick{At: tick.Add(-time.Hour), Again: true}, false, false},
		{"finished", again, true, false},
		{"interrupted", again, false, true},
		{"later", joblease.Tick{At: tick.Add(time.Hour)}, true, true},
		{"a slot", joblease.Tick{Slot: time.Hour}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, db := migrated(t, pgstore.Options{})
			rival := begin(t, db, pgx.TxOptions{})
			exec(t, rival, "INSERT INTO "+migrations.Table+" VALUES ('a', '', NULL, 1, 1, '1h', now(), now(), now(), $1, $2)", tick, c.done)
			answer := make(chan error, 1)
			go func() {
				_, err := s.Acquire(bounded(t), tickClaim("a", c.tick))
				answer <- err
			}()
			awaitLockWaiters(t, db, 1)
			require.NoError(t, rival.Commit(bounded(t)))
			if c.granted {
				require.NoError(t, <-answer)
				return
			}
			require.ErrorAs(t, <-answer, new(*joblease.TickError))
			require.True(t, refused(t, s, joblease.Tick{At: tick}).Last.Equal(tick))
		})
	}
}

// An operator may stop a job for good, or let it begin anew.
func TestATickAtInfinityIsTheLast(t *testing.T) {
	s, db := migrated(t, pgstore.Options{})
	require.NoError(t, s.Release(bounded(t), ticked(t, s)))
	db.Exec(t, "UPDATE "+migrations.Table+" SET tick = 'infinity'")
	for _, next := range []joblease.Tick{{At: tick.Add(time.Hour)}, {Slot: time.Second}, {Slot: time.Second, Again: true}} {
		require.Equal(t, 9999, refused(t, s, next).Last.Year())
	}
	_, err := s.List(bounded(t))
	require.NoError(t, err)
	db.Exec(t, "UPDATE "+migrations.Table+" SET tick = '-infinity'")
	_, err = s.List(bounded(t))
	require.NoError(t, err)
	ticked(t, s)
}
