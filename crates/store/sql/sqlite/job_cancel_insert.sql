insert or ignore into job_cancel (worker_id, job_id) values (?1, ?2)
