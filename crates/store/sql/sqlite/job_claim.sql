-- Differs from Postgres: SQLite has a single writer, so nobody can take the row between the look at the lane and
-- this update; no row lock is needed.
update job set stage = 3, attempt = attempt + 1, last_seq = last_seq + 1, started_seq = last_seq + 1,
               worker_id = ?2, lease_ms = ?3, token = ?4, started_at = max(?5, run_at)
where id = ?1 and stage = 0
