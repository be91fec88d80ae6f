-- What a key stands for.
select i.fingerprint, i.job_ids from stargate.idempotency i where i.key = $1::text
