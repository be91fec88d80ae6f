-- Remembers what the key stands for.
-- Only on Postgres: the key is taken before the jobs exist, so that whoever sends the same key waits for it; SQLite's
-- single writer writes both at the end.
update stargate.idempotency set job_ids = $2::bigint[] where key = $1::text
