select lane_id, started_seq, last_seq, attempt, started_at, finished_at, worker_id, unique_key, error
from job_history where id = ?1 and state = 3
