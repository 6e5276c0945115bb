-- All rows, as of one snapshot, with the clock of the answer.
SELECT l.name, l.holder, l.claim, l.token, l.version, l.ttl_us,
       l.acquired_at_us, l.renewed_at_us, l.expires_at_us, c.now, l.tick_us, l.tick_done
  FROM joblease_leases AS l,
       (SELECT CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) || '000' AS INTEGER) AS now) AS c
 ORDER BY l.name
