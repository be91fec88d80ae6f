-- The newest failed jobs by kind and code, the largest group first. State and id are compared as a pair, so that only the
-- index by both fits: by id alone failed jobs may be far between. $1 groups at most, $2 failed jobs looked at
with newest as materialized (
    select h.id, h.lane_id, h.error ->> 'code' as code, h.finished_at
      from stargate.job_history h
     where h.state <> 2 and (h.state, h.id) >= (3, 0) and (h.state, h.id) < (4, 0)
     order by h.state desc, h.id desc limit $2::integer
), lanes as (
    select n.lane_id, n.code, count(*) as count, max(n.id) as newest, max(n.finished_at) as last_at,
           min(n.finished_at) as oldest_at
      from newest n group by n.lane_id, n.code
), kinds as (
    select l.kind, n.code, sum(n.count)::bigint as count, max(n.newest) as newest, max(n.last_at) as last_at,
           min(n.oldest_at) as oldest_at, array_agg(distinct l.queue order by l.queue) as queues
      from lanes n join stargate.lane l on l.id = n.lane_id group by l.kind, n.code
     order by 3 desc, 4 desc limit $1::integer
)
select k.kind, coalesce(k.code, 'UNKNOWN'), h.error ->> 'class', k.count, k.newest, k.last_at, k.oldest_at,
       h.error ->> 'message', k.queues
  from kinds k join stargate.job_history h on h.id = k.newest
 order by k.count desc, k.newest desc
