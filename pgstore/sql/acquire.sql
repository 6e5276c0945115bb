-- Takes the lease, or tells what stands in the way.
--
-- $1 name, $2 claim, $3 holder, $4 TTL in microseconds, $5 takeover rule,
-- $6 and $7 the claim and the version that the rules 2 and 3 must find.
--
-- Atomic because the decision is made on the row under its lock: "free" locks
-- the row only if it may be taken, and the insert's own conflict rule decides
-- again on the row as it stands when it is locked, for a row that a rival
-- inserted meanwhile. The condition is on the stored row throughout; EXCLUDED is
-- what this statement proposes, and compared with itself lets everybody win.
--
-- A candidate that cannot win locks nothing, waits for nothing and writes
-- nothing: its row is not in "free", and so the insert has no rows. SKIP LOCKED
-- refuses at once where a fenced transaction or a rival has the row.
--
-- Instants are clock_timestamp(), read in the SET and so after every wait.
-- now() is the start of the transaction, and a value made before a wait could
-- grant a lease that is over. Only the values of a new row are made before the
-- insert can wait, for a rival that inserts the name and rolls back; the answer
-- tells what remains, read last.
--
-- No row in the answer: a rival inserted the name after this statement's
-- snapshot was taken.
WITH free AS (
    SELECT l.name
    FROM joblease_leases AS l
    WHERE l.name = $1
      AND (l.claim IS NULL
           OR l.claim = $2::uuid
           OR CASE $5::int
                  WHEN 1 THEN l.expires_at <= clock_timestamp()
                  WHEN 2 THEN l.claim = $6::uuid AND l.version = $7::bigint AND l.expires_at <= clock_timestamp()
                  WHEN 3 THEN l.claim = $6::uuid AND l.version = $7::bigint
                  ELSE false
              END)
    FOR UPDATE SKIP LOCKED
), taken AS (
    INSERT INTO joblease_leases AS l
        (name, holder, claim, token, version, ttl, acquired_at, renewed_at, expires_at)
    SELECT $1, $3, $2::uuid, 1, 1, p.ttl, p.now, p.now, p.now + p.ttl
    FROM (SELECT clock_timestamp() AS now, $4::bigint * interval '1 microsecond' AS ttl) AS p
    WHERE EXISTS (SELECT FROM free)
       OR NOT EXISTS (SELECT FROM joblease_leases AS r WHERE r.name = $1)
    ON CONFLICT (name) DO UPDATE SET
        holder = $3,
        claim = $2::uuid,
        token = CASE WHEN l.claim = $2::uuid THEN l.token ELSE l.token + 1 END,
        version = l.version + 1,
        ttl = $4::bigint * interval '1 microsecond',
        (acquired_at, renewed_at, expires_at) = (
            SELECT CASE WHEN l.claim = $2::uuid THEN l.acquired_at ELSE c.now END,
                   c.now,
                   c.now + $4::bigint * interval '1 microsecond'
            FROM clock_timestamp() AS c (now))
    WHERE l.claim IS NULL
       OR l.claim = $2::uuid
       OR CASE $5::int
              WHEN 1 THEN l.expires_at <= clock_timestamp()
              WHEN 2 THEN l.claim = $6::uuid AND l.version = $7::bigint AND l.expires_at <= clock_timestamp()
              WHEN 3 THEN l.claim = $6::uuid AND l.version = $7::bigint
              ELSE false
          END
    RETURNING l.holder, l.claim, l.token, l.version, l.ttl, l.acquired_at, l.expires_at
)
SELECT a.granted, a.holder, a.claim, a.token, a.version,
       (extract(epoch FROM a.ttl) * 1000000)::bigint,
       (extract(epoch FROM a.acquired_at) * 1000000)::bigint,
       -- An operator may have set infinity, or its opposite.
       (extract(epoch FROM greatest(least(a.expires_at, a.now + interval '100 years'), timestamptz 'epoch'))
           * 1000000)::bigint,
       (extract(epoch FROM a.now) * 1000000)::bigint
FROM (
    SELECT u.*, clock_timestamp() AS now
    FROM (
        SELECT true AS granted, t.* FROM taken AS t
        UNION ALL
        SELECT false, r.holder, r.claim, r.token, r.version, r.ttl, r.acquired_at, r.expires_at
        FROM joblease_leases AS r
        WHERE r.name = $1 AND NOT EXISTS (SELECT FROM taken)
    ) AS u
) AS a
