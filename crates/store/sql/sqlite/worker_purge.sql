-- Only on SQLite: Postgres removes old keys and old workers in one statement, purge_rest.sql.
delete from worker where gone_at < ?1 and not exists (select 1 from job where stage = 3 and worker_id = worker.id)
