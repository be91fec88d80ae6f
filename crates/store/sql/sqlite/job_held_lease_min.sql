select min(lease_ms) from job where stage = 3 and worker_id = ?1
