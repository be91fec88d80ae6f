-- Only on SQLite: on Postgres purge_history.sql does this in the same statement.
delete from job_event where job_id = ?1
