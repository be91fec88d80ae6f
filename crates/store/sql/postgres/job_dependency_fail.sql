-- Fails waiting jobs, each because of the parent beside it and the state that has, and their dependents with them.
-- Only on Postgres: on SQLite such a job goes straight into the history (job_insert_failed.sql).
select stargate.dependency_failed($2::bigint[], $3::bigint[], $4::smallint[], coalesce($1::timestamptz, now()))
