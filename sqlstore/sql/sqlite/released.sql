-- Which of the names, a JSON array, are free: released, or without a row. The
-- version tells one release from the next.
SELECT w.value, coalesce(l.version, 0)
  FROM json_each(:names) AS w LEFT JOIN joblease_leases AS l ON l.name = w.value
 WHERE l.claim IS NULL
