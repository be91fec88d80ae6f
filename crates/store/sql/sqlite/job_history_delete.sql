-- Only on SQLite: on Postgres job_retry.sql and purge_history.sql delete in the same statement.
delete from job_history where id = ?1
