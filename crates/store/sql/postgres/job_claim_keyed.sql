-- Gives out jobs when some of the ready ones have a limit key: as job_claim.sql, but within each key's concurrency and
-- rate, and with the keys of equal priority served by their virtual times. The rows of the keys that win are locked
-- before any job is, in the order of their names, and what they allow is read again under the lock.
-- Only on Postgres: on SQLite the program chooses the jobs in both cases and job_claim.sql takes one.
--
-- Gives nothing out either to a worker that has been silent for the shortest of its leases: the new ones would have run
-- out already, so it has to beat first.
--
-- $1 now, $2 worker, $3 limit, $4 queues (empty: all), $5 kinds, $6 slots, $7 lease_ms, $8 token, $9 upkeep first
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
), found (lane_id) as (
    (select j.lane_id from stargate.job j where j.stage = 0 order by j.lane_id limit 1)
    union all
    select (select j.lane_id from stargate.job j where j.stage = 0 and j.lane_id > f.lane_id order by j.lane_id limit 1)
      from found f where f.lane_id is not null
), served as materialized (
    select l.id, l.kind, l.limit_key, k.slots, k.lease_ms
      from found f
      join stargate.lane l on l.id = f.lane_id
      join unnest($5::text[], $6::integer[], $7::integer[]) k (kind, slots, lease_ms) on k.kind = l.kind
     where (cardinality($4::text[]) = 0 or l.queue = any ($4::text[]))
       and not exists (select from stargate.pause p
                        where (p.scope = 'queue' and p.name = l.queue) or (p.scope = 'kind' and p.name = l.kind))
), upkeep as materialized (
    select (select j.run_at from stargate.job j where j.stage = 1 order by j.run_at limit 1) as due_at,
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
     where not claimant.silent and not ($9::boolean and (coalesce(u.due_at <= at.now, false) or coalesce(u.expires_at <= at.now, false)))
), keys as materialized (
    -- A key that was idle stands behind the clock and starts where the clock is.
    select k.key, k.weight, greatest(k.vtime, c.vtime) as vtime, k.rate_count, k.rate_per_ms, b.tokens,
           least(coalesce(k.concurrency - k.running, 1000), coalesce(floor(b.tokens), 1000))::integer as room
      from stargate.limit_key k
      cross join stargate.limit_clock c
      cross join at
      cross join lateral (
            select least(k.rate_count, coalesce(k.tokens, k.rate_count) + k.rate_count
                   * greatest(extract(epoch from at.now - coalesce(k.refilled_at, at.now)), 0)::double precision * 1000 / k.rate_per_ms
                   ) as tokens) b
     where k.key = any (array(select distinct s.limit_key from served s))
), candidate as materialized (
    select c.*, c.vtime + (c.key_place - 1)::double precision / c.weight as start
      from (select s.id as lane_id, s.kind, s.slots, k.key, k.vtime, k.weight, k.room, j.priority, j.run_at, j.id,
                   row_number() over (partition by k.key order by j.priority desc, j.run_at, j.id) as key_place
              from served s
              join keys k on k.key = s.limit_key
              cross join lateral (
                    select b.* from (
                        select j.id, j.priority, j.run_at from stargate.job j
                         where j.stage = 0 and j.lane_id = s.id
                         order by j.priority desc, j.run_at, j.id
                         limit 1000) b
                     limit least($3::integer, s.slots, k.room)) j
             where k.room > 0 and exists (select from gate)) c
     where c.key_place <= c.room
), winner as materialized (
    select w.* from (
        select c.*, row_number() over (partition by c.kind order by c.priority desc, c.start, c.run_at, c.id) as kind_place
          from candidate c) w
     where w.kind_place <= w.slots
     order by w.priority desc, w.start, w.run_at, w.id
     limit $3::integer
), locked as materialized (
    select k.key, k.concurrency, k.running, k.tokens, k.refilled_at, k.rate_count, k.rate_per_ms
      from stargate.limit_key k
     where k.key = any (array(select distinct w.key from winner w))
     order by k.key
       for update
), allowed as materialized (
    select l.key, b.tokens,
           least(coalesce(l.concurrency - l.running, 1000), coalesce(floor(b.tokens), 1000)) as room
      from locked l
      cross join at
      cross join lateral (
            select least(l.rate_count, coalesce(l.tokens, l.rate_count) + l.rate_count
                   * greatest(extract(epoch from at.now - coalesce(l.refilled_at, at.now)), 0)::double precision * 1000 / l.rate_per_ms
                   ) as tokens) b
), share as materialized (
    select w.lane_id as id, count(*) as n
      from winner w join allowed a on a.key = w.key
     where w.key_place <= a.room
     group by w.lane_id
), taken as materialized (
    select j.ctid, share.id as lane_id
      from share
      cross join lateral (
            select b.ctid from (
                select j.ctid from stargate.job j
                 where j.stage = 0 and j.lane_id = share.id
                 order by j.priority desc, j.run_at, j.id
                 limit 1000
                   for update skip locked) b
             limit share.n) j
), claimed as (
    update stargate.job j
       set stage = 3, attempt = j.attempt + 1, worker_id = $2::integer, token = $8::bigint,
           lease_ms = (select s.lease_ms from served s where s.id = j.lane_id),
           started_at = greatest(at.now, j.run_at), last_seq = j.last_seq + 1, started_seq = j.last_seq + 1
      from at
     where j.ctid = any (array(select t.ctid from taken t))
    returning j.id, j.lane_id, j.attempt, j.max_attempts, j.progress, j.priority, j.run_at, j.payload::text as payload, j.trace_id
), used as materialized (
    -- Of what was updated, not of what was locked: a row can change its address in between.
    select s.limit_key as key, count(*)::integer as n from claimed c join served s on s.id = c.lane_id group by s.limit_key
), charged as (
    update stargate.limit_key k
       set running = case when k.key = '' then 0 else k.running + u.n end, tokens = a.tokens - u.n, refilled_at = at.now,
           vtime = greatest(k.vtime, ks.vtime) + u.n::double precision / k.weight
      from used u join allowed a on a.key = u.key join keys ks on ks.key = u.key, at
     where k.key = u.key
), moved as (
    update stargate.limit_clock c
       set vtime = greatest(c.vtime, m.start)
      from (select max(ks.vtime + (u.n - 1)::double precision / ks.weight) as start
              from used u join keys ks on ks.key = u.key) m
     where m.start > c.vtime
), refill as materialized (
    select min(greatest(1 - (ks.tokens - coalesce(us.n, 0)), 0) * ks.rate_per_ms / ks.rate_count * interval '1 millisecond') as wait
      from keys ks left join used us on us.key = ks.key
     where ks.rate_count is not null and ks.tokens - coalesce(us.n, 0) < 1
)
select u.keyed, u.due_at, u.expires_at, at.now + r.wait as token_at, at.now, (select c.fading from claimant c) as fading,
       ks.vtime as key_vtime, ks.weight as key_weight,
       c.id, c.lane_id, c.attempt, c.max_attempts, c.progress, c.priority, c.run_at, c.payload, c.trace_id,
       (select c.silent from claimant c) as silent
  from upkeep u
 cross join at
 cross join refill r
  left join claimed c on true
  left join served s on s.id = c.lane_id
  left join keys ks on ks.key = s.limit_key
