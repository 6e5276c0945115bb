-- Extends the lease if the claim still holds it; never inserts. Atomic because
-- it is one statement, which takes the write lock before it reads the row and
-- the clock. No row matches: lost, and no page is written.
UPDATE joblease_leases
   SET version       = version + 1,
       ttl_us        = :ttl,
       renewed_at_us = c.now,
       expires_at_us = c.now + :ttl
  FROM (SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now) AS c
 WHERE name = :name AND claim = :claim
