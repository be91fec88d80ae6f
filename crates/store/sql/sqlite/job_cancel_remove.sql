delete from job_cancel where worker_id = ?1 and job_id = ?2
