select seq, at, event, data from job_event where job_id = ?1 and seq > ?2 order by seq limit ?3
