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
-- A claim that holds the lease already keeps its token and its acquisition. The
-- sum of a token or version at its maximum is a REAL, which the STRICT table
-- refuses.
INSERT INTO joblease_leases AS l
       (name, holder, claim, token, version, ttl_us, acquired_at_us, renewed_at_us, expires_at_us)
SELECT :name, :holder, :claim, 1, 1, :ttl, c.now, c.now, c.now + :ttl
  FROM (SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now) AS c
 WHERE true -- without a WHERE the parser takes ON for the start of a join
    ON CONFLICT (name) DO UPDATE
   SET holder         = excluded.holder,
       claim          = excluded.claim,
       token          = l.token + (l.claim IS NOT excluded.claim),
       version        = l.version + 1,
       ttl_us         = excluded.ttl_us,
       acquired_at_us = iif(l.claim IS excluded.claim, l.acquired_at_us, excluded.acquired_at_us),
       renewed_at_us  = excluded.renewed_at_us,
       expires_at_us  = excluded.expires_at_us
 WHERE l.claim IS NULL
       OR l.claim = :claim
       OR :rule = 1 AND l.expires_at_us <= excluded.renewed_at_us
       OR :rule IN (2, 3) AND l.claim = :seen_claim AND l.version = :seen_version
          AND (:rule = 3 OR l.expires_at_us <= excluded.renewed_at_us)
RETURNING token, acquired_at_us, expires_at_us
