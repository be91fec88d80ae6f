-- The columns of a table and their types; no row if there is none.
-- Only on Postgres: SQLite has a pragma for that.
-- $1 schema and name, quoted
select a.attname::text, format_type(a.atttypid, a.atttypmod)
  from pg_attribute a
 where a.attrelid = to_regclass($1::text) and a.attnum > 0 and not a.attisdropped
 order by a.attnum
