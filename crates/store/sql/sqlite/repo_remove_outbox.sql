-- Only here because SQLite checks no foreign keys; on Postgres these rows go with the repository.
delete from webhook_outbox where event_id in (select id from push_event where repo_id = ?1)
    or webhook_id in (select id from webhook where repo_id = ?1)
