delete from job_event where job_id = ?1
