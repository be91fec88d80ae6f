-- Only here because SQLite checks no foreign keys; on Postgres these rows go with the repository.
delete from webhook where repo_id = ?1
