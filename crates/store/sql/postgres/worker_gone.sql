-- Gives silent workers up that hold nothing any more. The one that asks is evidently alive: it gets a beat.
update stargate.worker w
   set gone_at = case when w.id = $3::integer then null else t.now end,
       beat_at = case when w.id = $3::integer then t.now else w.beat_at end
  from (select coalesce($1::timestamptz, now()) as now) t
 where w.id = any ($2::integer[])
   and (w.id = $3::integer
        or (w.beat_at + w.lease_max_ms * interval '1 millisecond' <= t.now
            and not exists (select from stargate.job j where j.worker_id = w.id and j.stage = 3)))
