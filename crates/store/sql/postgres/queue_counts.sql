-- Jobs per queue and stage, of queues that have or had a job and of those that are paused.
with hot as (
    select j.lane_id, count(*) filter (where j.stage = 0) as ready, count(*) filter (where j.stage = 1) as delayed,
           count(*) filter (where j.stage = 2) as blocked, count(*) filter (where j.stage = 3) as processing
      from stargate.job j group by j.lane_id
), bad as (
    select h.lane_id, count(*) as failed from stargate.job_history h where h.state = 3 group by h.lane_id
)
select coalesce(q.queue, p.name), coalesce(q.ready, 0)::bigint, coalesce(q.delayed, 0)::bigint, coalesce(q.blocked, 0)::bigint,
       coalesce(q.processing, 0)::bigint, coalesce(q.failed, 0)::bigint, p.name is not null
  from (select l.queue, sum(hot.ready) as ready, sum(hot.delayed) as delayed, sum(hot.blocked) as blocked,
               sum(hot.processing) as processing, sum(bad.failed) as failed
          from stargate.lane l
          left join hot on hot.lane_id = l.id
          left join bad on bad.lane_id = l.id
         group by l.queue) q
  full join (select p.name from stargate.pause p where p.scope = 'queue') p on p.name = q.queue
 order by 1
