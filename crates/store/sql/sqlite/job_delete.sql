-- Only on SQLite: the second half of job_finish.sql, which on Postgres deletes and inserts in one statement.
delete from job where id = ?1
