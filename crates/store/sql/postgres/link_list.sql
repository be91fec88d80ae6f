-- $1 source, $2 the item before the page, $3 rows at most
select l.item, l.job_id, l.mark, l.terms::text, l.stage, j.stage
  from stargate.source_link l left join stargate.job j on j.id = l.job_id
 where l.source = $1::text and l.item > $2::text
 order by l.item limit $3::bigint
