-- Adds or replaces a schedule. When it was last fired is kept, and so is the instant that it waits for unless its times have changed:
-- what the caller knows of both may be from before a firing, which would be repeated.
insert into schedule (name, cron, time_zone, kind, queue, payload, priority, next_at, last_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
on conflict (name) do update set cron = excluded.cron, time_zone = excluded.time_zone, kind = excluded.kind,
    queue = excluded.queue, payload = excluded.payload, priority = excluded.priority,
    next_at = case when cron = excluded.cron and time_zone = excluded.time_zone
                   then coalesce(next_at, excluded.next_at) else excluded.next_at end,
    last_at = max(coalesce(excluded.last_at, last_at), coalesce(last_at, excluded.last_at))
