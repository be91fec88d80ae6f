-- Whether a worker holds the job.
select exists (select from stargate.job where id = $1::bigint and stage = 3)
