-- Only on SQLite: on Postgres job_cancel_request.sql does this in the same statement.
insert or ignore into job_cancel (worker_id, job_id) values (?1, ?2)
