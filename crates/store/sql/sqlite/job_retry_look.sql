-- A failed job as its retry needs it. Its payload is needed only where it is replaced. ?1 id, ?2 whether it is
select lane_id, started_seq, last_seq, attempt, started_at, finished_at, worker_id, unique_key, error,
       case when ?2 then payload end
from job_history where id = ?1 and state = 3
