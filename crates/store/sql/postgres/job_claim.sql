-- Gives out jobs while no job with a limit key is ready. In one statement: a skip-scan finds the lanes that have ready
-- jobs, each served lane gives its best rows, the best of all are taken. Rows of other lanes are never read.
--
-- Gives nothing out, but says why, when a job with a limit key is ready (job_claim_keyed.sql is for that), or, as long
-- as $9 is set, when a delayed job is due or a lease has expired: those may come first.
--
-- Gives nothing out either to a worker that has been silent for the shortest of its leases: the new ones would have run
-- out already, so it has to beat first.
--
-- What lies below a floor is not looked at (floors.rs): lanes are searched for between $10 and $11, and those that have
-- floors are read in the parts that are given, one of a single priority from a due time on. Others are read whole, in a branch
-- of its own: bounds of which the planner does not know how much they leave out would have it sort the lane.
--
-- $1 now, $2 worker, $3 limit, $4 queues (empty: all), $5 kinds, $6 slots, $7 lease_ms, $8 token, $9 upkeep first,
-- $10 above lanes, $11 below lanes, $12 lanes of the parts, $13 their highest priorities, $14 their lowest, $15 since when,
-- $16 delayed jobs since when
with recursive at as materialized (
    -- A lost claim only makes the job claimable again, so its commit need not wait for the disk.
    select coalesce($1::timestamptz, now()) as now, set_config('synchronous_commit', 'off', true)
), claimant as materialized (
    -- Held until commit: nobody can give this worker up and miss the jobs it is being given.
    select w.beat_at < at.now - w.lease_min_ms / 4 * interval '1 millisecond' as fading,
           w.beat_at + w.lease_min_ms * interval '1 millisecond' <= at.now as silent
      from stargate.worker w, at
     where w.id = $2::integer and w.gone_at is null
       for key share of w
), found (lane_id, below) as (
    select (select j.lane_id from stargate.job j
             where j.stage = 0 and j.lane_id > g.above and j.lane_id < g.below order by j.lane_id limit 1), g.below
      from unnest($10::integer[], $11::integer[]) g (above, below)
    union all
    select (select j.lane_id from stargate.job j
             where j.stage = 0 and j.lane_id > f.lane_id and j.lane_id < f.below order by j.lane_id limit 1), f.below
      from found f where f.lane_id is not null
), served as materialized (
    select l.id, l.kind, l.limit_key, k.slots, k.lease_ms
      from (select f.lane_id from found f union all select distinct p.lane_id from unnest($12::integer[]) p (lane_id)) f
      join stargate.lane l on l.id = f.lane_id
      join unnest($5::text[], $6::integer[], $7::integer[]) k (kind, slots, lease_ms) on k.kind = l.kind
     where (cardinality($4::text[]) = 0 or l.queue = any ($4::text[]))
       and not exists (select from stargate.pause p
                        where (p.scope = 'queue' and p.name = l.queue) or (p.scope = 'kind' and p.name = l.kind))
), part as materialized (
    select s.id as lane_id, p.most, p.least, p.since
      from served s
      join unnest($12::integer[], $13::smallint[], $14::smallint[], $15::timestamptz[]) p (lane_id, most, least, since)
        on p.lane_id = s.id
    union all
    select s.id, null, null, null from served s where s.id <> all ($12::integer[])
), upkeep as materialized (
    select (select j.run_at from stargate.job j
             where j.stage = 1 and j.run_at >= coalesce($16::timestamptz, '-infinity') order by j.run_at limit 1) as due_at,
           -- Now, where a beat is from before the clock was set back (worker_reset.sql).
           (select min(case when w.beat_at > at.now + w.lease_min_ms * interval '1 millisecond' then at.now
                            when w.beat_at + w.lease_min_ms * interval '1 millisecond' > at.now
                            then w.beat_at + w.lease_min_ms * interval '1 millisecond'
                            -- To be given up, whatever it holds: looking at its jobs would step over all that it ever ran for as
                            -- long as somebody holds a transaction open.
                            when w.beat_at + w.lease_max_ms * interval '1 millisecond' <= at.now and w.id <> $2::integer
                            then w.beat_at + w.lease_max_ms * interval '1 millisecond'
                            else w.beat_at + (select min(j.lease_ms) from stargate.job j
                                               where j.worker_id = w.id and j.stage = 3) * interval '1 millisecond' end)
              from stargate.worker w
             where w.gone_at is null
               and case when w.beat_at > at.now + w.lease_min_ms * interval '1 millisecond' then true
                        when w.beat_at + w.lease_min_ms * interval '1 millisecond' > at.now then w.id <> $2::integer
                        when w.beat_at + w.lease_max_ms * interval '1 millisecond' <= at.now and w.id <> $2::integer then true
                        else exists (select from stargate.job j where j.worker_id = w.id and j.stage = 3) end) as expires_at,
           exists (select from served s where s.limit_key <> '') as keyed
      from at
), gate as materialized (
    select from at, upkeep u, claimant
     where not claimant.silent and not u.keyed
       and not ($9::boolean and (coalesce(u.due_at <= at.now, false) or coalesce(u.expires_at <= at.now, false)))
), share as materialized (
    -- One lane needs no merging. Among several, look first without locks how many each may give.
    select s.id, least($3::integer, s.slots)::bigint as n
      from served s, gate
     where (select count(*) from served) = 1
    union all
    select c.lane_id, count(*)
      from (select r.lane_id from (
                select s.id as lane_id, s.slots, j.priority, j.run_at, j.id,
                       row_number() over (partition by s.kind order by j.priority desc, j.run_at, j.id) as place
                  from served s
                  cross join lateral (
                        select b.* from (select * from part p where p.lane_id = s.id order by p.most desc) p
                         cross join lateral (
                            select * from (
                                select j.id, j.priority, j.run_at from stargate.job j
                                 where p.most is null
                                   and j.stage = 0 and j.lane_id = s.id
                                 order by j.priority desc, j.run_at, j.id
                                 limit 1000) whole
                            union all
                            select * from (
                                select j.id, j.priority, j.run_at from stargate.job j
                                 where p.since is null
                                   and j.stage = 0 and j.lane_id = s.id and j.priority between p.least and p.most
                                 order by j.priority desc, j.run_at, j.id
                                 limit 1000) between_floors
                            union all
                            select * from (
                                select j.id, j.priority, j.run_at from stargate.job j
                                 where p.since is not null
                                   and j.stage = 0 and j.lane_id = s.id and j.priority = p.most and j.run_at >= p.since
                                 order by j.run_at, j.id
                                 limit 1000) above_floor) b
                         limit least($3::integer, s.slots)) j
                 where exists (select from gate) and (select count(*) from served) > 1) r
             where r.place <= r.slots
             order by r.priority desc, r.run_at, r.id
             limit $3::integer) c
     group by c.lane_id
), taken as materialized (
    select j.ctid
      from share
      cross join lateral (
            -- The constant tells the planner that this is small, which it cannot see from a parameter: without it, a
            -- large table makes the statement look dear enough to be compiled. No more rows are locked than are read.
            select b.ctid from (select * from part p where p.lane_id = share.id order by p.most desc) p
             cross join lateral (
                select * from (
                    select j.ctid from stargate.job j
                     where p.most is null
                       and j.stage = 0 and j.lane_id = share.id
                     order by j.priority desc, j.run_at, j.id
                     limit 1000
                       for update skip locked) whole
                union all
                select * from (
                    select j.ctid from stargate.job j
                     where p.since is null
                       and j.stage = 0 and j.lane_id = share.id and j.priority between p.least and p.most
                     order by j.priority desc, j.run_at, j.id
                     limit 1000
                       for update skip locked) between_floors
                union all
                select * from (
                    select j.ctid from stargate.job j
                     where p.since is not null
                       and j.stage = 0 and j.lane_id = share.id and j.priority = p.most and j.run_at >= p.since
                     order by j.run_at, j.id
                     limit 1000
                       for update skip locked) above_floor) b
             limit share.n) j
), claimed as (
    -- By row address: whatever the statistics say, this is never a scan of the table. Time stands still within a
    -- statement, and a job that was enqueued after it began may be among those it sees: none starts before it is due.
    update stargate.job j
       set stage = 3, attempt = j.attempt + 1, worker_id = $2::integer, token = $8::bigint,
           lease_ms = coalesce((select case when min(ms) = max(ms) then min(ms) end from unnest($7::integer[]) ms),
                               (select s.lease_ms from served s where s.id = j.lane_id)),
           started_at = greatest(at.now, j.run_at), last_seq = j.last_seq + 1, started_seq = j.last_seq + 1
      from at
     where j.ctid = any (array(select t.ctid from taken t))
    returning j.id, j.lane_id, j.attempt, j.max_attempts, j.progress, j.priority, j.run_at, j.payload::text as payload, j.trace_id
)
select u.keyed, u.due_at, u.expires_at, null::timestamptz as token_at, at.now, (select c.fading from claimant c) as fading,
       null::double precision as key_vtime, null::integer as key_weight,
       c.id, c.lane_id, c.attempt, c.max_attempts, c.progress, c.priority, c.run_at, c.payload, c.trace_id,
       (select c.silent from claimant c) as silent
  from upkeep u cross join at left join claimed c on true
