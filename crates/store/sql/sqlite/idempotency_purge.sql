delete from idempotency where key in (select key from idempotency where created_at <= ?1 limit ?2)
