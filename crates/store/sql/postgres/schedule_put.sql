-- Adds or replaces a schedule. When it was last fired is kept, and so is the instant that it waits for unless its times have changed:
-- what the caller knows of both may be from before a firing, which would be repeated.
insert into stargate.schedule (name, cron, time_zone, kind, queue, payload, priority, next_at, last_at)
values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text::json, $7::smallint, $8::timestamptz, $9::timestamptz)
on conflict (name) do update set cron = excluded.cron, time_zone = excluded.time_zone, kind = excluded.kind, queue = excluded.queue,
    payload = excluded.payload, priority = excluded.priority,
    next_at = case when schedule.cron = excluded.cron and schedule.time_zone = excluded.time_zone
                   then coalesce(schedule.next_at, excluded.next_at) else excluded.next_at end,
    last_at = greatest(excluded.last_at, schedule.last_at)
