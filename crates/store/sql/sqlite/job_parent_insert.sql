insert or ignore into job_parent (job_id, parent_id) values (?1, ?2)
