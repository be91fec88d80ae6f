-- Failed jobs that may be retried together: those whose unique keys are free, with the keys, and whether they have parents.
-- Of jobs with the same key the caller takes one. $1 ids
select h.id, h.unique_key, exists (select from stargate.job_parent p where p.job_id = h.id)
  from stargate.job_history h
 where h.id = any ($1::bigint[]) and h.state = 3
   and (h.unique_key is null or not exists (select from stargate.job j where j.unique_key = h.unique_key))
 order by h.id for update of h
