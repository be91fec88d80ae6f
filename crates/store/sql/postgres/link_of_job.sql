-- $1 source, $2 job
select l.item, l.job_id, l.mark, l.terms::text, l.stage, j.stage
  from stargate.source_link l left join stargate.job j on j.id = l.job_id
 where l.source = $1::text and l.job_id = $2::bigint
