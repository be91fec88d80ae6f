-- Only on SQLite: its single writer looks and then acts; Postgres acts on a condition (job_cancel_waiting.sql,
-- job_cancel_request.sql).
select lane_id, stage, has_children, cancel_requested, last_seq, worker_id from job where id = ?1
