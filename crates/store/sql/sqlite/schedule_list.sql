select name, cron, time_zone, kind, queue, payload, priority, next_at, last_at from schedule order by name
