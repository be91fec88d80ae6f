-- Only on SQLite: on Postgres job_finish.sql and worker_beat.sql do this in the same statement.
delete from job_cancel where worker_id = ?1 and job_id = ?2
