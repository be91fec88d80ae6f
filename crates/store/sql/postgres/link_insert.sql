-- $1 source, $2 items, $3 jobs, $4 marks, $5 terms
insert into stargate.source_link (source, item, job_id, mark, terms)
select $1::text, n.item, n.job_id, n.mark, n.terms::json
  from unnest($2::text[], $3::bigint[], $4::text[], $5::text[]) n (item, job_id, mark, terms)
