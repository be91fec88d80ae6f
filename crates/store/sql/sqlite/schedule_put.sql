insert into schedule (name, cron, time_zone, kind, queue, payload, priority, next_at, last_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
on conflict (name) do update set cron = excluded.cron, time_zone = excluded.time_zone, kind = excluded.kind,
    queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, next_at = excluded.next_at,
    last_at = coalesce(excluded.last_at, last_at)
