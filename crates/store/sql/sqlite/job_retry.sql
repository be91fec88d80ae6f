-- ?1 id, ?2 stage, ?3 open parents, ?4 now, ?5 another payload or null, ?6 the number of its last event
insert into job (id, lane_id, stage, priority, attempt, max_attempts, progress, blockers, last_seq,
                 worker_id, run_at, created_at, started_at, payload, unique_key, trace_id, error)
select id, lane_id, ?2, priority, attempt, min(attempt + max_attempts, 32767), progress, ?3, ?6,
       worker_id, ?4, created_at, started_at, coalesce(?5, payload), unique_key, trace_id, error
from job_history where id = ?1 and state = 3
