-- Only here because a store is moved from SQLite to Postgres and not back.
-- Kinds; a worker that waits at the target may have registered them already. $1 the rows as a JSON array
with written as (
    insert into stargate.kind as t (name, max_attempts, max_crashes)
    select r.name, least(r.max_attempts, 1000)::smallint, least(r.max_crashes, 1000)::smallint
      from json_to_recordset($1::text::json) as r
           (name text, max_attempts integer, max_crashes integer)
    on conflict (name) do update set max_attempts = excluded.max_attempts, max_crashes = excluded.max_crashes
    returning 1
)
select count(*) from written
