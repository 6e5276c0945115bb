-- Frees the lease if the claim still holds it. The row and its token stay.
-- Atomic because it is one statement, which takes the write lock before it reads
-- the row and the clock. No row matches: lost, and no page is written.
--
-- :finished is the tick whose run has finished, or null.
UPDATE joblease_leases
   SET holder        = '',
       claim         = NULL,
       version       = version + 1,
       renewed_at_us = c.now,
       expires_at_us = c.now,
       tick_done     = tick_done OR coalesce(tick_us = :finished, 0)
  FROM (SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now) AS c
 WHERE name = :name AND claim = :claim
