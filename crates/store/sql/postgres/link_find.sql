-- Links of items that may be known already, locked; whether their job is unfinished.
-- $1 source, $2 items
select l.item, l.job_id, l.stage, exists (select from stargate.job j where j.id = l.job_id)
  from stargate.source_link l
 where l.source = $1::text and l.item = any ($2::text[])
 order by l.item
   for update of l
