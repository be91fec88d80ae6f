update job set stage = 0, attempt = attempt - 1, last_seq = ?2, started_seq = 0, lease_ms = null, token = null,
               started_at = null, worker_id = null
where id = ?1
