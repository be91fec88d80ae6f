-- Gives silent workers up that hold nothing any more, but for the one that asks: it is evidently alive.
update stargate.worker w
   set gone_at = t.now
  from (select coalesce($1::timestamptz, now()) as now) t
 where w.id = any ($2::integer[]) and w.id <> $3::integer
   and w.beat_at + w.lease_max_ms * interval '1 millisecond' <= t.now
   and not exists (select from stargate.job j where j.worker_id = w.id and j.stage = 3)
