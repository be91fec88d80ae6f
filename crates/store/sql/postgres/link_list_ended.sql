-- $1 source, $2 the item before the page, $3 rows at most
select l.item, l.job_id, l.mark, l.terms::text, l.stage, null::smallint
  from stargate.source_link l
 where l.source = $1::text and l.item > $2::text and not exists (select from stargate.job j where j.id = l.job_id)
 order by l.item limit $3::bigint
