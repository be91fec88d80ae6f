-- Tells waiting jobs that parents are done; those that wait for nothing else become ready, or delayed.
-- Each row is looked up by "any (array[id])" for the reason that job_finish.sql gives.
with hit as materialized (
    select p.job_id, count(*)::smallint as n from stargate.job_parent p where p.parent_id = any ($2::bigint[]) group by p.job_id
), locked as materialized (
    select j.id from stargate.job j join hit h on j.id = any (array[h.job_id]) where j.stage = 2 order by j.id for update of j
)
update stargate.job j
   set blockers = greatest(j.blockers - h.n, 0),
       stage = case when j.blockers > h.n then 2 when j.run_at > coalesce($1::timestamptz, now()) then 1 else 0 end
  from locked l join hit h on h.job_id = l.id
 where j.id = any (array[l.id])
