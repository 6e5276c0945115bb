package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

// The row is locked for longer than the TTL. Whatever becomes of it, a grant is
// for a full TTL from the instant at which it was made.
func TestAGrantAfterALongLockIsForAFullTTL(t *testing.T) {
	const ttl = 200 * time.Millisecond
	insert := "INSERT INTO " + migrations.Table + ` (name, holder, claim, token, version, ttl, acquired_at, renewed_at, expires_at)
		VALUES ('a', 'rival', gen_random_uuid(), 1, 1, '1h', now(), now(), now() + interval '1h')`
	update := "UPDATE " + migrations.Table + " SET holder = 'rival', claim = gen_random_uuid(), token = token + 1, " +
		"version = version + 1, expires_at = now() + interval '1h' WHERE name = 'a'"
	for _, c := range []struct {
		name   string
		there  bool   // the row is there, and expired
		sql    string // by the other session
		commit bool
		waits  bool // the candidate cannot be refused at once
		after  string
	}{
		{"locked only", true, "SELECT FROM " + migrations.Table + " FOR UPDATE", false, false, "granted"},
		{"updated and rolled back", true, update, false, false, "granted"},
		{"updated and committed", true, update, true, false, "held"},
		{"deleted and committed", true, "DELETE FROM " + migrations.Table, true, false, "granted"},
		{"absent with a rival's insert rolled back", false, insert, false, true, "granted"},
		{"absent with a rival's insert committed", false, insert, true, true, "held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, db := migrated(t, pgstore.Options{})
			if c.there {
				g := acquired(t, s, "a", ttl)
				eventually(t, "the lease expires", func() bool {
					return pgtest.Scan[bool](t, db, "SELECT clock_timestamp() >= $1", g.ExpiresAt)
				})
			}
			tx := begin(t, db, pgx.TxOptions{})
			exec(t, tx, c.sql)
			end := func() {
				if c.commit {
					require.NoError(t, tx.Commit(bounded(t)))
				} else {
					require.NoError(t, tx.Rollback(bounded(t)))
				}
			}
			mine := claim("a", ttl, joblease.TakeExpired)
			type result struct {
				g   joblease.Grant
				err error
			}
			results := make(chan result, 1)
			try := func() {
				g, err := s.Acquire(bounded(t), mine)
				results <- result{g, err}
			}
			if c.waits {
				go try()
				awaitLockWaiters(t, db, 1)
				// It has to be longer than the TTL; nothing tells that it was.
				time.Sleep(2 * ttl)
				end()
			} else {
				try()
				require.ErrorIs(t, (<-results).err, joblease.ErrHeld, "refused while the row is locked")
				end()
				go try()
			}
			r := <-results
			clock := pgtest.Scan[time.Time](t, db, "SELECT clock_timestamp()")
			if c.after == "held" {
				var h *joblease.HeldError
				require.ErrorAs(t, r.err, &h)
				require.Equal(t, "rival", h.Holder, "the refusal tells what stands there now")
				return
			}
			require.NoError(t, r.err)
			require.GreaterOrEqual(t, r.g.ExpiresAt.Sub(clock), ttl/2, "what is left of it")
			records, err := s.List(bounded(t))
			require.NoError(t, err)
			require.Len(t, records, 1)
			require.Equal(t, mine.ID, records[0].Claim)
			require.Equal(t, r.g.ExpiresAt, records[0].ExpiresAt)
		})
	}
}

// A statement that waits for a lock is ended by the server, before the caller
// leaves: no session goes on waiting, and the connection stays in use.
func TestACallThatWaitsIsEndedByTheServer(t *testing.T) {
	s, db := migrated(t, pgstore.Options{SharePool: true})
	g := acquired(t, s, "a", long)
	lockRow(t, db, "a")
	sessions := db.Sessions(t)

	for _, call := range []func(context.Context, joblease.Grant) error{s.Renew, s.Release} {
		ctx := within(t, 300*time.Millisecond)
		err := call(ctx, g)
		undecided(t, err)
		var answer *pgconn.PgError
		require.ErrorAs(t, err, &answer, "the server has answered")
		require.Contains(t, []string{"57014", "55P03"}, answer.Code)
		require.NoError(t, ctx.Err(), "before the caller's time was over")
		require.Zero(t, lockWaiters(t, db))
		require.Equal(t, sessions, db.Sessions(t), "on a connection that is still good")
	}
}

// The settings for a call apply to its statement, whatever the session's are,
// and are gone when it ends.
func TestTheSettingsOfACallDoNotOutliveIt(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	session := map[string]string{"statement_timeout": "50ms", "lock_timeout": "40ms", "synchronous_commit": "off"}
	cfg := db.Config(t)
	cfg.MaxConns = 1
	for name, value := range session {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	pool := pgtest.NewPool(t, cfg)
	s := open(t, pool, pgstore.Options{SharePool: true})
	g := acquired(t, s, "a", long)

	tx := lockRow(t, db, "a")
	renewed := make(chan error, 1)
	go func() { renewed <- s.Renew(bounded(t), g) }()
	awaitLockWaiters(t, db, 1)
	time.Sleep(100 * time.Millisecond) // past the session's limits
	require.NoError(t, tx.Rollback(bounded(t)))
	require.NoError(t, <-renewed)

	for name, value := range session {
		var got string
		require.NoError(t, pool.QueryRow(bounded(t), "SELECT current_setting($1)", name).Scan(&got))
		require.Equal(t, value, got, name)
	}
}

// A commit that is not flushed would be forgotten in a crash, and the lease
// granted again.
func TestAGrantIsFlushedAlsoWhereCommitsAreNot(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	db.Exec(t, "ALTER TABLE "+migrations.Table+" ADD seen text DEFAULT current_setting('synchronous_commit')")
	for setting, during := range map[string]string{"off": "on", "local": "local", "on": "on"} {
		cfg := db.Config(t)
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = setting
		acquired(t, open(t, pgtest.NewPool(t, cfg), pgstore.Options{}), setting, long)
		require.Equal(t, during, pgtest.Scan[string](t, db, "SELECT seen FROM "+migrations.Table+" WHERE name = $1", setting))
	}
}
