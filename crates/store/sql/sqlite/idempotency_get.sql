select fingerprint, job_ids from idempotency where key = ?1 and created_at > ?2
