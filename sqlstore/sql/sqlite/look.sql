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
SELECT l.holder, l.claim, l.token, l.version, l.ttl_us, l.expires_at_us, c.now,
       l.claim IS NULL
       OR l.claim = :claim
       OR :rule = 1 AND l.expires_at_us <= c.now
       OR :rule IN (2, 3) AND l.claim = :seen_claim AND l.version = :seen_version
          AND (:rule = 3 OR l.expires_at_us <= c.now) AS free
  FROM joblease_leases AS l,
       (SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now) AS c
 WHERE l.name = :name
