-- Only on Postgres: gives out the jobs of one lane to a worker that had taken everything it could and has since heard of
-- new jobs in this lane only. The general claim takes three times as long, most of it to set itself up.
--
-- Gives nothing out when something is paused, a delayed job has become due or the worker has not beaten for half of its
-- shortest lease; the general claim decides then.
--
-- $1 now, $2 worker, $3 limit, $4 lane, $5 lease_ms, $6 token
with at as materialized (
    select coalesce($1::timestamptz, now()) as now, set_config('synchronous_commit', 'off', true)
), claimant as materialized (
    select w.id from stargate.worker w, at
     where w.id = $2::integer and w.gone_at is null
       and w.beat_at + w.lease_min_ms / 2 * interval '1 millisecond' > at.now
       for key share of w
), taken as materialized (
    select b.ctid
      from (select j.ctid from stargate.job j
             where j.stage = 0 and j.lane_id = $4::integer
             order by j.priority desc, j.run_at, j.id
             limit 1000
               for update skip locked) b
     where exists (select from claimant)
       and not exists (select from stargate.pause)
       and not exists (select from stargate.job d where d.stage = 1 and d.run_at <= (select now from at))
     limit $3::integer
)
update stargate.job j
   set stage = 3, attempt = j.attempt + 1, worker_id = $2::integer, token = $6::bigint, lease_ms = $5::integer,
       started_at = greatest(at.now, j.run_at), last_seq = j.last_seq + 1, started_seq = j.last_seq + 1
  from at
 where j.ctid = any (array(select t.ctid from taken t))
returning at.now, j.id, j.attempt, j.max_attempts, j.progress, j.priority, j.run_at, j.payload::text, j.trace_id
