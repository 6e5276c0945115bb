-- Takes the lease, or returns no row. The decision is made here.
--
-- Atomic because it is one statement in autocommit: SQLite takes the file's
-- write lock before the statement reads anything, its clock included, and drops
-- it when the statement has committed. No other process can write in between,
-- and a clock read before a wait for the lock cannot be stored.
--
-- The condition is that of look.sql, and compares what stands in the row.
-- excluded serves only to carry what was computed once: the clock.
--
-- A claim that holds the lease already keeps its token, its acquisition and its
-- tick. The sum of a token or version at its maximum is a REAL, which the STRICT
-- table refuses.
WITH clock AS (
    SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now
), wanted AS (
    SELECT now, coalesce(:tick, now / :slot * :slot) AS tick FROM clock
), asked AS (
    SELECT now, tick, iif((tick + :slot - now) * 4 <= :slot, tick + :slot, tick) AS last FROM wanted
)
INSERT INTO joblease_leases AS l
       (name, holder, claim, token, version, ttl_us, acquired_at_us, renewed_at_us, expires_at_us, tick_us, tick_done)
SELECT :name, :holder, :claim, 1, 1, :ttl, a.now, a.now, a.now + :ttl, a.tick, a.tick IS NULL
  FROM asked AS a
 WHERE a.tick IS NULL OR a.tick <= a.now OR EXISTS (SELECT 1 FROM joblease_leases AS r WHERE r.name = :name)
    ON CONFLICT (name) DO UPDATE
   SET holder         = excluded.holder,
       claim          = excluded.claim,
       token          = l.token + (l.claim IS NOT excluded.claim),
       version        = l.version + 1,
       ttl_us         = excluded.ttl_us,
       acquired_at_us = iif(l.claim IS excluded.claim, l.acquired_at_us, excluded.acquired_at_us),
       renewed_at_us  = excluded.renewed_at_us,
       expires_at_us  = excluded.expires_at_us,
       tick_us        = CASE WHEN l.claim IS excluded.claim OR excluded.tick_us IS NULL THEN l.tick_us
                             WHEN l.tick_us >= excluded.tick_us THEN (SELECT last FROM asked)
                             ELSE excluded.tick_us
                        END,
       tick_done      = (l.claim IS excluded.claim OR excluded.tick_us IS NULL) AND l.tick_done
 WHERE l.claim = :claim
       OR (excluded.tick_us IS NULL
           OR excluded.tick_us <= excluded.renewed_at_us
              AND (l.tick_us IS NULL OR l.tick_us < (SELECT last FROM asked)
                   OR :again AND l.tick_us = (SELECT last FROM asked) AND NOT l.tick_done))
          AND (l.claim IS NULL
               OR :rule = 1 AND l.expires_at_us <= excluded.renewed_at_us
               OR :rule IN (2, 3) AND l.claim = :seen_claim AND l.version = :seen_version
                  AND (:rule = 3 OR l.expires_at_us <= excluded.renewed_at_us))
RETURNING token, acquired_at_us, expires_at_us, tick_us
