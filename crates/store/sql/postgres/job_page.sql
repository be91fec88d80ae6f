-- A page of unfinished jobs of all queues and kinds, newest first. The sum keeps the planner off the indexes for one
-- stage, which are not in the order of the page.
--
-- $1 before (exclusive), $2 no smaller id, $3 stages, $4 since, $5 limit
select j.id, l.kind, l.queue, l.limit_key, j.stage, null::smallint as state, j.priority, j.attempt, j.max_attempts, j.crash_count,
       j.progress, j.payload::text, null::text as result, j.error::text, w.name, j.run_at, j.created_at, j.started_at,
       null::timestamptz as finished_at,
       case when j.stage = 3 then w.beat_at + j.lease_ms * interval '1 millisecond' end as lease_expires_at,
       j.unique_key, j.trace_id, j.cancel_requested, j.last_seq, j.started_seq
  from (select j.* from stargate.job j
         where j.id < $1::bigint and j.id >= $2::bigint and j.stage + 0 = any ($3::smallint[])
           and ($4::timestamptz is null or j.created_at >= $4::timestamptz)
         order by j.id desc limit $5::integer) j
  join stargate.lane l on l.id = j.lane_id
  left join stargate.worker w on w.id = j.worker_id
