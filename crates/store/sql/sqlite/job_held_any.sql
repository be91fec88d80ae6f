select exists (select 1 from job where stage = 3 and worker_id = ?1)
