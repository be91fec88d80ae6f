select id, lane_id from job_history where state = ?1 and finished_at <= ?2 order by finished_at limit ?3
