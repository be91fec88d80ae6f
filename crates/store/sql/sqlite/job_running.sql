-- Whether a worker holds the job.
select exists (select 1 from job where id = ?1 and stage = 3)
