-- A page of finished jobs, newest first. The columns are those of job_page.sql.
--
-- $1 before (exclusive), $2 states, $3 kind, $4 queue, $5 since, $6 limit
with lanes as materialized (
    select l.id from stargate.lane l where l.kind = coalesce($3::text, l.kind) and l.queue = coalesce($4::text, l.queue)
), page as (
    -- Without a lane to look for, the newest rows of each state; with one, the newest of each lane.
    select p.* from unnest($2::smallint[]) s (state)
     cross join lateral (
            select h.* from stargate.job_history h
             where h.state = s.state and h.id < $1::bigint
               and ($5::timestamptz is null or h.created_at >= $5::timestamptz)
             order by h.id desc limit $6::integer) p
     where $3::text is null and $4::text is null
    union all
    select p.* from lanes
     cross join lateral (
            select h.* from stargate.job_history h
             where h.lane_id = lanes.id and h.state = any ($2::smallint[]) and h.id < $1::bigint
               and ($5::timestamptz is null or h.created_at >= $5::timestamptz)
             order by h.id desc limit $6::integer) p
     where $3::text is not null or $4::text is not null
)
select h.id, l.kind, l.queue, l.limit_key, null::smallint as stage, h.state, h.priority, h.attempt, h.max_attempts, h.crash_count,
       h.progress, h.payload::text, h.result::text, h.error::text, w.name, h.run_at, h.created_at, h.started_at,
       h.finished_at, null::timestamptz as lease_expires_at,
       h.unique_key, h.trace_id, h.cancel_requested, h.last_seq, h.started_seq
  from (select * from page order by id desc limit $6::integer) h
  join stargate.lane l on l.id = h.lane_id
  left join stargate.worker w on w.id = h.worker_id
