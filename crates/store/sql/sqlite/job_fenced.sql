select lane_id, has_children, cancel_requested, last_seq, started_seq, started_at, worker_id, run_at
from job where id = ?1 and attempt = ?2 and token = ?3 and stage = 3
