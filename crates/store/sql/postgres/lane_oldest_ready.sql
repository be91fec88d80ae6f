-- Since when the oldest job waits that could run: the first row of each lane and priority, found by skipping.
with recursive head (lane_id, priority, run_at) as (
    (select j.lane_id, j.priority, j.run_at from stargate.job j where j.stage = 0
      order by j.lane_id, j.priority desc, j.run_at limit 1)
    union all
    select n.lane_id, n.priority, n.run_at
      from head h
     cross join lateral (
            select x.* from (
                (select j.lane_id, j.priority, j.run_at from stargate.job j
                  where j.stage = 0 and j.lane_id = h.lane_id and j.priority < h.priority
                  order by j.lane_id, j.priority desc, j.run_at limit 1)
                union all
                (select j.lane_id, j.priority, j.run_at from stargate.job j
                  where j.stage = 0 and j.lane_id > h.lane_id
                  order by j.lane_id, j.priority desc, j.run_at limit 1)) x
             order by x.lane_id, x.priority desc limit 1) n
)
select min(h.run_at), coalesce($1::timestamptz, now())
  from head h
  join stargate.lane l on l.id = h.lane_id
 where not exists (select from stargate.pause p
                    where (p.scope = 'queue' and p.name = l.queue) or (p.scope = 'kind' and p.name = l.kind))
