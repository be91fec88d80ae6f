-- A page of finished jobs of a queue or kind, newest first. The columns are those of job_page.sql.
-- Lane and id are compared as a pair, so that only the index by both fits: by id alone a rare lane is far away.
--
-- $1 before (exclusive), $2 no smaller id, $3 states, $4 since, $5 limit, $6 kind, $7 queue
with lanes as materialized (
    select l.id from stargate.lane l where l.kind = coalesce($6::text, l.kind) and l.queue = coalesce($7::text, l.queue)
), page as (
    (select p.* from lanes cross join lateral (
        select h.* from stargate.job_history h
         where h.state = 2 and (h.lane_id, h.id) < (lanes.id, $1::bigint) and (h.lane_id, h.id) >= (lanes.id, $2::bigint)
           and ($4::timestamptz is null or h.created_at >= $4::timestamptz)
         order by h.lane_id desc, h.id desc limit $5::integer) p
      where 2 = any ($3::smallint[]))
    union all
    (select p.* from lanes cross join lateral (
        select h.* from stargate.job_history h
         where h.state <> 2 and h.state = any ($3::smallint[]) and (h.lane_id, h.id) < (lanes.id, $1::bigint) and (h.lane_id, h.id) >= (lanes.id, $2::bigint)
           and ($4::timestamptz is null or h.created_at >= $4::timestamptz)
         order by h.lane_id desc, h.id desc limit $5::integer) p
      where 3 = any ($3::smallint[]) or 4 = any ($3::smallint[]))
)
select h.id, l.kind, l.queue, l.limit_key, null::smallint as stage, h.state, h.priority, h.attempt, h.max_attempts, h.crash_count,
       h.progress, h.payload::text, h.result::text, h.error::text, w.name, h.run_at, h.created_at, h.started_at,
       h.finished_at, null::timestamptz as lease_expires_at,
       h.unique_key, h.trace_id, h.cancel_requested, h.last_seq, h.started_seq
  from (select p.* from page p order by p.id desc limit $5::integer) h
  join stargate.lane l on l.id = h.lane_id
  left join stargate.worker w on w.id = h.worker_id
