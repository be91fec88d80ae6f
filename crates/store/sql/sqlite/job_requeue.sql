update job set stage = ?2, attempt = attempt - ?3, crash_count = crash_count + ?4, last_seq = ?5, started_seq = 0,
               lease_ms = null, token = null, run_at = ?6, error = coalesce(?7, error)
where id = ?1
