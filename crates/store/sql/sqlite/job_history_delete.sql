delete from job_history where id = ?1
