-- All schedules.
select s.name, s.cron, s.time_zone, s.kind, s.queue, s.payload::text, s.priority, s.next_at, s.last_at
  from stargate.schedule s order by s.name
