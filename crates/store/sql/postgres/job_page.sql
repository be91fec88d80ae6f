-- A page of unfinished jobs, newest first.
--
-- $1 before (exclusive), $2 stages, $3 kind, $4 queue, $5 since, $6 limit
select j.id, l.kind, l.queue, l.limit_key, j.stage, null::smallint as state, j.priority, j.attempt, j.max_attempts, j.crash_count,
       j.progress, j.payload::text, null::text as result, j.error::text, w.name, j.run_at, j.created_at, j.started_at,
       null::timestamptz as finished_at,
       case when j.stage = 3 then w.beat_at + j.lease_ms * interval '1 millisecond' end as lease_expires_at,
       j.unique_key, j.trace_id, j.cancel_requested, j.last_seq, j.started_seq
  from (select j.* from stargate.job j
         where j.id < $1::bigint and j.stage = any ($2::smallint[])
           and (($3::text is null and $4::text is null) or j.lane_id = any (array(
                select l.id from stargate.lane l where l.kind = coalesce($3::text, l.kind) and l.queue = coalesce($4::text, l.queue))))
           and ($5::timestamptz is null or j.created_at >= $5::timestamptz)
         order by j.id desc limit $6::integer) j
  join stargate.lane l on l.id = j.lane_id
  left join stargate.worker w on w.id = j.worker_id
