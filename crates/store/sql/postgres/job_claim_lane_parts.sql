-- Only on Postgres: as job_claim_lane.sql, while some of what the lane has given out cannot be removed: it is read in the parts
-- that are given, and not below the floors between them (floors.rs). A statement of its own because each part makes a claim a little
-- slower, and a start should not wait for what is hardly ever there.
--
-- $1 now, $2 worker, $3 limit, $4 lane, $5 lease_ms, $6 token, $7 highest priorities of the parts of the lane (see
-- job_claim.sql), $8 their lowest, $9 since when, $10 delayed jobs since when
with at as materialized (
    select coalesce($1::timestamptz, now()) as now, set_config('synchronous_commit', 'off', true)
), claimant as materialized (
    select w.id from stargate.worker w, at
     where w.id = $2::integer and w.gone_at is null
       and w.beat_at + w.lease_min_ms / 2 * interval '1 millisecond' > at.now
       for key share of w
), taken as materialized (
    select b.ctid
      from unnest($7::smallint[], $8::smallint[], $9::timestamptz[]) p (most, least, since)
      cross join lateral (
            select * from (
                select j.ctid from stargate.job j
                 where p.most is null
                   and j.stage = 0 and j.lane_id = $4::integer
                 order by j.priority desc, j.run_at, j.id
                 limit 1000
                   for update skip locked) whole
            union all
            select * from (
                select j.ctid from stargate.job j
                 where p.since is null
                   and j.stage = 0 and j.lane_id = $4::integer and j.priority between p.least and p.most
                 order by j.priority desc, j.run_at, j.id
                 limit 1000
                   for update skip locked) between_floors
            union all
            select * from (
                select j.ctid from stargate.job j
                 where p.since is not null
                   and j.stage = 0 and j.lane_id = $4::integer and j.priority = p.most and j.run_at >= p.since
                 order by j.run_at, j.id
                 limit 1000
                   for update skip locked) above_floor) b
     where exists (select from claimant)
       and not exists (select from stargate.pause)
       and not exists (select from stargate.job d
                        where d.stage = 1 and d.run_at >= coalesce($10::timestamptz, '-infinity')
                          and d.run_at <= (select now from at))
     limit $3::integer
)
update stargate.job j
   set stage = 3, attempt = j.attempt + 1, worker_id = $2::integer, token = $6::bigint, lease_ms = $5::integer,
       started_at = greatest(at.now, j.run_at), last_seq = j.last_seq + 1, started_seq = j.last_seq + 1
  from at
 where j.ctid = any (array(select t.ctid from taken t))
returning at.now, j.id, j.attempt, j.max_attempts, j.progress, j.priority, j.run_at, j.payload::text, j.trace_id
