-- Remembers what a job waits for.
insert into stargate.job_parent (job_id, parent_id)
select $1::bigint, p from (select distinct unnest($2::bigint[])) d (p)
