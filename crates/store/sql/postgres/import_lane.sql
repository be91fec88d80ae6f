-- Only here because a store is moved from SQLite to Postgres and not back.
-- Lanes with their numbers. $1 the rows as a JSON array
with written as (
    insert into stargate.lane as t (id, queue, kind, limit_key)
    overriding system value
    select r.id, r.queue, r.kind, r.limit_key
      from json_to_recordset($1::text::json) as r
           (id integer, queue text, kind text, limit_key text)
    returning 1
)
select count(*) from written
