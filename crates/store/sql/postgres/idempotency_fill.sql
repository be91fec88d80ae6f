-- Remembers what the key stands for.
update stargate.idempotency set job_ids = $2::bigint[] where key = $1::text
