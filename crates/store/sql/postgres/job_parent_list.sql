-- What a job waits or waited for.
select p.parent_id, j.stage, h.state
  from stargate.job_parent p
  left join stargate.job j on j.id = p.parent_id
  left join stargate.job_history h on h.id = p.parent_id
 where p.job_id = $1::bigint
 order by p.parent_id
