-- Only on SQLite: on Postgres part of the claim and of worker_remove.sql.
select exists (select 1 from job where stage = 3 and worker_id = ?1)
