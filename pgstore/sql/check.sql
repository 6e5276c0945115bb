-- Reads what there is to know about the table, for a person to be told what is
-- wrong with it. It locks and writes nothing.
--
-- $1 the table as it is written in statements.
SELECT pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       current_user,
       c.relkind,
       c.relpersistence,
       has_table_privilege(c.oid, 'SELECT'),
       has_table_privilege(c.oid, 'INSERT'),
       has_table_privilege(c.oid, 'UPDATE'),
       EXISTS (SELECT FROM pg_index AS i
               JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
                 AND i.indnkeyatts = 1 AND i.indpred IS NULL AND a.attname = 'name'),
       (SELECT json_object_agg(a.attname, format_type(a.atttypid, a.atttypmod))
        FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM (SELECT to_regclass($1) AS oid) AS t
LEFT JOIN pg_class AS c ON c.oid = t.oid
