-- Jobs by their ids, from wherever they are. $1 ids
select j.id, l.kind, l.queue, l.limit_key, j.stage, null::smallint as state, j.priority, j.attempt, j.max_attempts, j.crash_count,
       j.progress, j.payload::text, null::text as result, j.error::text, w.name, j.run_at, j.created_at, j.started_at,
       null::timestamptz as finished_at,
       case when j.stage = 3 then w.beat_at + j.lease_ms * interval '1 millisecond' end as lease_expires_at,
       j.unique_key, j.trace_id, j.cancel_requested, j.last_seq, j.started_seq
  from stargate.job j
  join stargate.lane l on l.id = j.lane_id
  left join stargate.worker w on w.id = j.worker_id
 where j.id = any ($1::bigint[])
union all
select h.id, l.kind, l.queue, l.limit_key, null::smallint as stage, h.state, h.priority, h.attempt, h.max_attempts, h.crash_count,
       h.progress, h.payload::text, h.result::text, h.error::text, w.name, h.run_at, h.created_at, h.started_at,
       h.finished_at, null::timestamptz as lease_expires_at,
       h.unique_key, h.trace_id, h.cancel_requested, h.last_seq, h.started_seq
  from stargate.job_history h
  join stargate.lane l on l.id = h.lane_id
  left join stargate.worker w on w.id = h.worker_id
 where h.id = any ($1::bigint[])
