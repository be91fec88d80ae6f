-- The jobs of silent workers whose leases have expired, with what decides about their future.
select j.id, j.attempt, j.token, j.max_attempts, j.crash_count, j.cancel_requested, l.kind, k.max_crashes, w.name
  from stargate.worker w
  join stargate.job j on j.worker_id = w.id and j.stage = 3
  join stargate.lane l on l.id = j.lane_id
  join stargate.kind k on k.name = l.kind
 where w.id = any ($2::integer[])
   and w.beat_at + j.lease_ms * interval '1 millisecond' <= coalesce($1::timestamptz, now())
 order by j.id
 limit 1000
