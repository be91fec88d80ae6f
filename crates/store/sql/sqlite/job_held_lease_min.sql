-- Only on SQLite: on Postgres the claim answers it in the same statement (expires_at).
select min(lease_ms) from job where stage = 3 and worker_id = ?1
