-- A page of finished jobs of all queues and kinds, newest first. The columns are those of job_page.sql.
-- Each state has its own index, hence the constants.
--
-- $1 before (exclusive), $2 no smaller id, $3 states, $4 since, $5 limit
with page as (
    (select h.* from stargate.job_history h
      where 2 = any ($3::smallint[]) and h.state = 2 and h.id < $1::bigint and h.id >= $2::bigint
        and ($4::timestamptz is null or h.created_at >= $4::timestamptz)
      order by h.id desc limit $5::integer)
    union all
    (select h.* from stargate.job_history h
      where 3 = any ($3::smallint[]) and h.state = 3 and h.id < $1::bigint and h.id >= $2::bigint
        and ($4::timestamptz is null or h.created_at >= $4::timestamptz)
      order by h.id desc limit $5::integer)
    union all
    (select h.* from stargate.job_history h
      where 4 = any ($3::smallint[]) and h.state = 4 and h.id < $1::bigint and h.id >= $2::bigint
        and ($4::timestamptz is null or h.created_at >= $4::timestamptz)
      order by h.id desc limit $5::integer)
)
select h.id, l.kind, l.queue, l.limit_key, null::smallint as stage, h.state, h.priority, h.attempt, h.max_attempts, h.crash_count,
       h.progress, h.payload::text, h.result::text, h.error::text, w.name, h.run_at, h.created_at, h.started_at,
       h.finished_at, null::timestamptz as lease_expires_at,
       h.unique_key, h.trace_id, h.cancel_requested, h.last_seq, h.started_seq
  from (select p.* from page p order by p.id desc limit $5::integer) h
  join stargate.lane l on l.id = h.lane_id
  left join stargate.worker w on w.id = h.worker_id
