-- Extends the lease if the claim still holds it.
--
-- $1 name, $2 claim, $3 TTL in microseconds.
--
-- Atomic because it is one update of one row, found by the claim: no other
-- claim's row can match, and it never inserts, so that a lease that is gone
-- stays gone. It changes no key column: it touches no index, and both its lock
-- and its update pass the row lock of a fence.
--
-- "held" takes the row's lock first, so that the SET, and with it the clock, is
-- read after every wait for that lock. An update alone makes its values before
-- it waits, and a renewal that waited could succeed and be over.
WITH held AS (
    SELECT l.name
    FROM joblease_leases AS l
    WHERE l.name = $1 AND l.claim = $2::uuid
    FOR NO KEY UPDATE
)
UPDATE joblease_leases AS l
SET ttl = $3::bigint * interval '1 microsecond',
    version = l.version + 1,
    (renewed_at, expires_at) = (
        SELECT c.now, c.now + $3::bigint * interval '1 microsecond'
        FROM clock_timestamp() AS c (now))
FROM held AS h
WHERE l.name = h.name AND l.claim = $2::uuid
