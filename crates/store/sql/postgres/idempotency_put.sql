-- Takes an idempotency key that is free or has expired. Somebody else's uncommitted one is waited for.
insert into stargate.idempotency as i (key, fingerprint, created_at)
values ($2::text, $3::text, coalesce($1::timestamptz, now()))
on conflict (key) do update set fingerprint = excluded.fingerprint, job_ids = '{}', created_at = excluded.created_at
 where i.created_at <= excluded.created_at - interval '24 hours'
returning i.key
