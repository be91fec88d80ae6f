-- Only on SQLite: on Postgres purge_history.sql does this in the same statement.
delete from job_parent where job_id = ?1 or parent_id = ?1
