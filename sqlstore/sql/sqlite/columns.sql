-- The columns of the table, none if there is no such table. It reads the schema
-- only.
SELECT t.strict, c.name, c.type, c.pk
  FROM pragma_table_list(:table) AS t, pragma_table_info(:table, t.schema) AS c
