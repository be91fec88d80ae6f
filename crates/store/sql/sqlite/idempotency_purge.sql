-- Only on SQLite: Postgres removes old keys and old workers in one statement, purge_rest.sql.
delete from idempotency where key in (select key from idempotency where created_at <= ?1 limit ?2)
