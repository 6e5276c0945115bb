-- Frees the lease if the claim still holds it, and tells those who wait for it.
--
-- $1 name, $2 claim, $3 channel, $4 what goes before the name in the message,
-- $5 the tick whose run has finished, or null.
--
-- Atomic because it is one update of one row, found by the claim. The message is
-- part of the same transaction: it is sent if, and only when, the lease is free.
WITH released AS (
    UPDATE joblease_leases AS l
    SET claim = NULL,
        holder = '',
        version = l.version + 1,
        expires_at = clock_timestamp(),
        tick_done = l.tick_done OR coalesce(l.tick = $5::timestamptz, false)
    WHERE l.name = $1 AND l.claim = $2::uuid
    RETURNING l.name
)
SELECT pg_notify($3, $4 || r.name) FROM released AS r
