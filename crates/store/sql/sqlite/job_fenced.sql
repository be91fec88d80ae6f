-- Only on SQLite: its single writer reads the row behind a fence and then acts; on Postgres the fence is part of
-- every statement that changes the job.
select lane_id, has_children, cancel_requested, last_seq, started_seq, started_at, worker_id, run_at, lease_ms
from job where id = ?1 and attempt = ?2 and token = ?3 and stage = 3
