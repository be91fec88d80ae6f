-- The source was told: the jobs may run.
-- $1 now, $2 source, $3 items, $4 marks, $5 who notifies
with held as (
    update stargate.source_link l set stage = 1
      from unnest($3::text[], $4::text[]) c (item, mark)
     where l.source = $2::text and l.item = c.item and l.mark = c.mark and l.stage = 0
    returning l.job_id
), freed as (
    update stargate.job j
       set blockers = greatest(j.blockers - 1, 0),
           stage = case when j.blockers > 1 then 2 when j.run_at > coalesce($1::timestamptz, now()) then 1 else 0 end
     where j.id = any (array(select h.job_id from held h)) and j.stage = 2
    returning j.id
)
select (select count(*) from held), (select count(*) from freed), pg_notify('stargate_jobs', $5::text)::text
