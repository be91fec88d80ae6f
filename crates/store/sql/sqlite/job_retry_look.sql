-- Only on SQLite: its single writer looks and then acts; on Postgres job_retry.sql acts on a condition.
select lane_id, started_seq, last_seq, attempt, started_at, finished_at, worker_id, unique_key, error
from job_history where id = ?1 and state = 3
