insert into idempotency (key, fingerprint, job_ids, created_at) values (?1, ?2, ?3, ?4)
on conflict (key) do update set fingerprint = excluded.fingerprint, job_ids = excluded.job_ids,
                                created_at = excluded.created_at
