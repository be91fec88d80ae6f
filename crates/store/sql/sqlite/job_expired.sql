select id, lane_id, attempt, max_attempts, crash_count, has_children, cancel_requested, last_seq, started_seq,
       started_at, run_at
from job where stage = 3 and worker_id = ?1 and lease_ms <= ?2 limit ?3
