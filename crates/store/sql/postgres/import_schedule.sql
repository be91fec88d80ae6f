-- Only here because a store is moved from SQLite to Postgres and not back.
-- Schedules; the ones of the old store know what was fired last. $1 the rows as a JSON array
with written as (
    insert into stargate.schedule as t (name, cron, time_zone, kind, queue, payload, priority, next_at, last_at)
    select r.name, r.cron, r.time_zone, r.kind, r.queue, r.payload::json, r.priority::smallint, 'epoch'::timestamptz +
           r.next_at * interval '1 microsecond', 'epoch'::timestamptz + r.last_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (name text, cron text, time_zone text, kind text, queue text, payload text, priority integer, next_at
            bigint, last_at bigint)
    on conflict (name) do update set cron = excluded.cron, time_zone = excluded.time_zone, kind = excluded.kind,
        queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, next_at = excluded.next_at,
        last_at = excluded.last_at
    returning 1
)
select count(*) from written
