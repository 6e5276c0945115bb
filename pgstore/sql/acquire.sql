-- Takes the lease, or tells what stands in the way.
--
-- $1 name, $2 claim, $3 holder, $4 TTL in microseconds, $5 takeover rule,
-- $6 and $7 the claim and the version that the rules 2 and 3 must find,
-- $8 what is wanted of ticks: 0 none, 1 a new one, 2 also the last one once more,
-- if it is unfinished; $9 the tick or null, $10 the length of slots in
-- microseconds or null.
--
-- Atomic because the decision is made on the row under its lock: "free" locks
-- the row only if it may be taken, and the insert's own conflict rule decides
-- again on the row as it stands. A row that a rival inserted after the snapshot
-- is in nobody's "free" and is left alone: the conflict rule's lock is weaker
-- than FOR UPDATE and would pass a fence. The conditions are on the stored row throughout; EXCLUDED
-- is what this statement proposes, and compared with itself lets everybody win.
--
-- A candidate that cannot win locks nothing, waits for nothing and writes
-- nothing: its row is not in "free", and so the insert has no rows. SKIP LOCKED
-- refuses at once where a fenced transaction or a rival has the row.
--
-- Instants of the lease are clock_timestamp(), read in the SET and so after
-- every wait. now() is the start of the transaction, and a value made before a
-- wait could grant a lease that is over. Only the values of a new row are made
-- before the insert can wait, for a rival that inserts the name and rolls back;
-- the answer tells what remains, read last.
--
-- The tick goes by one reading of the clock, "asked", in all places: with two of
-- them, around the start of a slot or a step of the clock, the condition would
-- allow one tick and the SET store another. It is read just before the lock,
-- which is not waited for, and the comparison with the stored tick is under the
-- lock, so an old reading can only be refused or grant a tick that is over.
-- "tick" is what is asked for, "last" the same if it has been claimed: the next
-- slot if that begins within a quarter of its length.
--
-- No row in the answer: a rival inserted the name after this statement's
-- snapshot was taken.
WITH asked AS MATERIALIZED (
    SELECT s.now, s.tick,
           CASE WHEN (s.tick + s.slot - s.now) * 4 <= s.slot THEN s.tick + s.slot ELSE s.tick END AS last
    FROM (SELECT c.now, c.slot, coalesce($9::timestamptz, date_bin(c.slot, c.now, timestamptz 'epoch')) AS tick
          FROM (SELECT clock_timestamp() AS now, $10::bigint * interval '1 microsecond' AS slot) AS c) AS s
), free AS (
    SELECT l.name
    FROM joblease_leases AS l
    WHERE l.name = $1
      AND (l.claim = $2::uuid
           OR (l.claim IS NULL
               OR CASE $5::int
                      WHEN 1 THEN l.expires_at <= clock_timestamp()
                      WHEN 2 THEN l.claim = $6::uuid AND l.version = $7::bigint AND l.expires_at <= clock_timestamp()
                      WHEN 3 THEN l.claim = $6::uuid AND l.version = $7::bigint
                      ELSE false
                  END)
              AND ($8::int = 0
                   OR (SELECT a.tick <= a.now
                              AND (l.tick IS NULL OR l.tick < a.last
                                   OR $8::int = 2 AND l.tick = a.last AND NOT l.tick_done)
                       FROM asked AS a)))
    FOR UPDATE SKIP LOCKED
), taken AS (
    INSERT INTO joblease_leases AS l
        (name, holder, claim, token, version, ttl, acquired_at, renewed_at, expires_at, tick, tick_done)
    SELECT $1, $3, $2::uuid, 1, 1, p.ttl, p.now, p.now, p.now + p.ttl, (SELECT a.tick FROM asked AS a), $8::int = 0
    FROM (SELECT clock_timestamp() AS now, $4::bigint * interval '1 microsecond' AS ttl) AS p
    WHERE EXISTS (SELECT FROM free)
       OR NOT EXISTS (SELECT FROM joblease_leases AS r WHERE r.name = $1)
          AND ($8::int = 0 OR (SELECT a.tick <= a.now FROM asked AS a))
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
            FROM clock_timestamp() AS c (now)),
        tick = CASE WHEN $8::int = 0 OR l.claim = $2::uuid THEN l.tick
                    ELSE (SELECT CASE WHEN l.tick >= a.tick THEN a.last ELSE a.tick END FROM asked AS a)
               END,
        tick_done = CASE WHEN $8::int = 0 OR l.claim = $2::uuid THEN l.tick_done ELSE false END
    WHERE EXISTS (SELECT FROM free)
      AND (l.claim = $2::uuid
             OR (l.claim IS NULL
                 OR CASE $5::int
                        WHEN 1 THEN l.expires_at <= clock_timestamp()
                        WHEN 2 THEN l.claim = $6::uuid AND l.version = $7::bigint AND l.expires_at <= clock_timestamp()
                        WHEN 3 THEN l.claim = $6::uuid AND l.version = $7::bigint
                        ELSE false
                    END)
                AND ($8::int = 0
                     OR (SELECT a.tick <= a.now
                                AND (l.tick IS NULL OR l.tick < a.last
                                     OR $8::int = 2 AND l.tick = a.last AND NOT l.tick_done)
                         FROM asked AS a)))
    RETURNING l.holder, l.claim, l.token, l.version, l.ttl, l.acquired_at, l.expires_at, l.tick, l.tick_done
)
SELECT u.outcome, u.holder, u.claim, coalesce(u.token, 0), coalesce(u.version, 0),
       coalesce((extract(epoch FROM u.ttl) * 1000000)::bigint, 0),
       (extract(epoch FROM u.acquired_at) * 1000000)::bigint,
       -- An operator may have set infinity, or its opposite.
       (extract(epoch FROM greatest(least(u.expires_at, u.now + interval '100 years'), timestamptz 'epoch'))
           * 1000000)::bigint,
       (extract(epoch FROM u.now) * 1000000)::bigint,
       (extract(epoch FROM CASE WHEN u.tick < timestamptz '10000-01-01Z' THEN greatest(u.tick, timestamptz 'epoch')
                                WHEN u.tick IS NOT NULL THEN timestamptz '9999-12-31 23:59:59.999999Z' END)
           * 1000000)::bigint,
       u.tick_done,
       (extract(epoch FROM u.asked) * 1000000)::bigint,
       (extract(epoch FROM u.judged) * 1000000)::bigint
FROM (
    SELECT 'granted' AS outcome, t.*, NULL::timestamptz AS asked, NULL::timestamptz AS judged,
           clock_timestamp() AS now
    FROM taken AS t
    UNION ALL
    SELECT CASE WHEN $8::int = 0
                     OR r.claim = $2::uuid
                     OR a.tick <= a.now
                        AND (r.tick IS NULL OR r.tick < a.last
                             OR $8::int = 2 AND r.tick = a.last AND NOT r.tick_done)
                THEN 'held'
                ELSE 'tick'
           END,
           r.holder, r.claim, r.token, r.version, r.ttl, r.acquired_at, r.expires_at,
           r.tick, coalesce(r.tick_done, true),
           CASE WHEN r.tick >= a.tick THEN a.last ELSE a.tick END, a.now, clock_timestamp()
    FROM asked AS a
    LEFT JOIN joblease_leases AS r ON r.name = $1
    WHERE (r.name IS NOT NULL OR a.tick > a.now) AND NOT EXISTS (SELECT FROM taken)
) AS u
