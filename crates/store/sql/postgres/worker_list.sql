-- The workers that are still counted on, with what they hold.
select w.id, w.name, w.kinds, w.queues, w.concurrency, w.started_at, w.beat_at,
       (select count(*) from stargate.job j where j.worker_id = w.id and j.stage = 3),
       w.beat_at + w.lease_min_ms * interval '1 millisecond' > coalesce($1::timestamptz, now())
  from stargate.worker w
 where w.gone_at is null
 order by w.id
