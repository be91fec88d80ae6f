delete from job_parent where job_id = ?1 or parent_id = ?1
