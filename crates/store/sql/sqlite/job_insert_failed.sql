-- Only on SQLite: on Postgres the job is inserted as a waiting one and failed by job_dependency_fail.sql.
-- A job whose parent has failed already goes straight into the history.
insert into job_history (id, lane_id, state, priority, attempt, max_attempts, crash_count, progress, last_seq, started_seq,
                         run_at, created_at, finished_at, payload, unique_key, trace_id, error)
values (?1, ?2, 3, ?3, 0, ?4, 0, 0, 2, 0, ?5, ?6, ?6, ?7, ?8, ?9, ?10)
