-- The newest failed jobs by kind and code, the largest group first. ?1 groups at most, ?2 failed jobs looked at
with newest as (
    select h.id, h.lane_id, json_extract(h.error, '$.code') as code, h.finished_at
    from job_history h indexed by job_history_not_done where h.state = 3 and h.state <> 2 order by h.id desc limit ?2
), lanes as (
    select n.lane_id, n.code, count(*) as count, max(n.id) as newest, max(n.finished_at) as last_at,
           min(n.finished_at) as oldest_at
    from newest n group by n.lane_id, n.code
), kinds as (
    select l.kind, n.code, sum(n.count) as count, max(n.newest) as newest, max(n.last_at) as last_at,
           min(n.oldest_at) as oldest_at, json_group_array(distinct l.queue) as queues
    from lanes n join lane l on l.id = n.lane_id group by l.kind, n.code
    order by 3 desc, 4 desc limit ?1
)
select k.kind, coalesce(k.code, 'UNKNOWN'), json_extract(h.error, '$.class'), k.count, k.newest, k.last_at, k.oldest_at,
       json_extract(h.error, '$.message'), k.queues
from kinds k join job_history h on h.id = k.newest
order by k.count desc, k.newest desc
