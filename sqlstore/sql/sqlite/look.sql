-- What stands in the row, and whether the claim may take it: what a candidate
-- asks before it asks for the write lock. A reader writes nothing and, in WAL
-- mode, neither waits for a writer nor makes one wait, so losing costs nothing.
--
-- The answer decides a refusal only. A candidate that may take the lease sends
-- take.sql, which repeats the condition under the write lock.
--
-- now is SQLite's clock in microseconds. SQLite tells milliseconds; all uses of
-- 'now' within one statement give the same instant.
--
-- :rule is a joblease.TakeoverRule: 1 TakeExpired, 2 TakeSightedExpired, 3 TakeSighted.
--
-- Of ticks, :tick is an instant or null, :slot a length or null, :again whether
-- the last tick may be claimed once more if it is unfinished. "tick" is what is
-- asked for, "last" the same if it has been claimed: the next slot if that
-- begins within a quarter of its length.
WITH clock AS (
    SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now
), wanted AS (
    SELECT now, coalesce(:tick, now / :slot * :slot) AS tick FROM clock
), asked AS (
    SELECT now, tick, iif((tick + :slot - now) * 4 <= :slot, tick + :slot, tick) AS last FROM wanted
)
SELECT CASE WHEN l.claim = :claim THEN 'free'
            WHEN NOT (a.tick IS NULL
                      OR a.tick <= a.now
                         AND (l.tick_us IS NULL OR l.tick_us < a.last
                              OR :again AND l.tick_us = a.last AND NOT l.tick_done))
                THEN 'tick'
            WHEN l.claim IS NULL -- released, or no row
                 OR :rule = 1 AND l.expires_at_us <= a.now
                 OR :rule IN (2, 3) AND l.claim = :seen_claim AND l.version = :seen_version
                    AND (:rule = 3 OR l.expires_at_us <= a.now)
                THEN 'free'
            ELSE 'held'
       END,
       coalesce(l.holder, ''), l.claim, coalesce(l.token, 0), coalesce(l.version, 0), coalesce(l.ttl_us, 0),
       coalesce(l.expires_at_us, a.now), a.now,
       l.tick_us, coalesce(l.tick_done, 1), iif(l.tick_us >= a.tick, a.last, a.tick)
  FROM asked AS a LEFT JOIN joblease_leases AS l ON l.name = :name
