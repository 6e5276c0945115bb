-- Reads all rows. One statement, one snapshot: the rows are of the same instant.
SELECT a.name, a.holder, a.claim, a.token, a.version,
       (extract(epoch FROM a.ttl) * 1000000)::bigint,
       (extract(epoch FROM a.acquired_at) * 1000000)::bigint,
       (extract(epoch FROM a.renewed_at) * 1000000)::bigint,
       -- An operator may have set infinity, or its opposite.
       (extract(epoch FROM greatest(least(a.expires_at, a.now + interval '100 years'), timestamptz 'epoch'))
           * 1000000)::bigint,
       (extract(epoch FROM a.now) * 1000000)::bigint,
       (extract(epoch FROM CASE WHEN a.tick < timestamptz '10000-01-01Z' THEN greatest(a.tick, timestamptz 'epoch')
                                WHEN a.tick IS NOT NULL THEN timestamptz '9999-12-31 23:59:59.999999Z' END)
           * 1000000)::bigint,
       a.tick_done
FROM (SELECT l.*, clock_timestamp() AS now FROM joblease_leases AS l) AS a
ORDER BY a.name
