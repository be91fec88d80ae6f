-- Jobs per queue and stage, of queues that have or had a job and of those that are paused.
-- Each stage is counted in its own index, of which the one for ready jobs has no need of the table where that was vacuumed.
with hot as (
    select j.lane_id, count(*) as ready, 0::bigint as delayed, 0::bigint as blocked, 0::bigint as processing
      from stargate.job j where j.stage = 0 group by j.lane_id
    union all
    select j.lane_id, 0, count(*) filter (where j.stage = 1), count(*) filter (where j.stage = 2), 0
      from stargate.job j where j.stage in (1, 2) group by j.lane_id
    union all
    select j.lane_id, 0, 0, 0, count(*) from stargate.job j where j.stage = 3 group by j.lane_id
), stages as (
    select h.lane_id, sum(h.ready) as ready, sum(h.delayed) as delayed, sum(h.blocked) as blocked, sum(h.processing) as processing
      from hot h group by h.lane_id
), bad as (
    select h.lane_id, count(*) as failed from stargate.job_history h where h.state = 3 group by h.lane_id
)
select coalesce(q.queue, p.name), coalesce(q.ready, 0)::bigint, coalesce(q.delayed, 0)::bigint, coalesce(q.blocked, 0)::bigint,
       coalesce(q.processing, 0)::bigint, coalesce(q.failed, 0)::bigint, p.name is not null
  from (select l.queue, sum(s.ready) as ready, sum(s.delayed) as delayed, sum(s.blocked) as blocked,
               sum(s.processing) as processing, sum(bad.failed) as failed
          from stargate.lane l
          left join stages s on s.lane_id = l.id
          left join bad on bad.lane_id = l.id
         group by l.queue) q
  full join (select p.name from stargate.pause p where p.scope = 'queue') p on p.name = q.queue
 order by 1
