-- Only here because SQLite checks no foreign keys; on Postgres these rows go with the hook.
delete from webhook_outbox where webhook_id = ?1
