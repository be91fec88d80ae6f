-- "or fail" because the default would keep a journal for this one row, in case a later row of the same statement is
-- refused; the command's own savepoint undoes it as well.
insert or fail into job_history (id, lane_id, state, priority, attempt, max_attempts, crash_count, progress, last_seq, started_seq,
                         worker_id, run_at, created_at, started_at, finished_at, payload, result, unique_key, trace_id, error)
select id, lane_id, ?2, priority, attempt, max_attempts, crash_count + ?3, progress, last_seq + 1, started_seq,
       worker_id, run_at, created_at, started_at, ?4, payload, ?5, unique_key, trace_id,
       case when ?2 = 2 then null else coalesce(?6, error) end
from job where id = ?1
