-- Only here because a store is moved from SQLite to Postgres and not back.
-- Which tables are sinks; they follow afterwards. $1 the rows as a JSON array
with written as (
    insert into stargate.directive_sink as t (table_name, columns, created_at)
    select r.table_name, r.columns::json, 'epoch'::timestamptz + r.created_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (table_name text, columns text, created_at bigint)
    returning 1
)
select count(*) from written
