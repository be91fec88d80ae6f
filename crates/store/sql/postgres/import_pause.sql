-- Only here because a store is moved from SQLite to Postgres and not back.
-- What is paused. $1 the rows as a JSON array
with written as (
    insert into stargate.pause as t (scope, name)
    select r.scope, r.name
      from json_to_recordset($1::text::json) as r
           (scope text, name text)
    on conflict (scope, name) do update set name = excluded.name
    returning 1
)
select count(*) from written
