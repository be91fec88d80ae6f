-- Only on SQLite: on Postgres job_get.sql looks into both tables.
select j.id, l.kind, l.queue, j.state, null, j.priority, j.attempt, j.max_attempts, j.crash_count, j.progress,
       j.payload, j.result, j.error, w.name, j.run_at, j.created_at, j.started_at, j.finished_at,
       null,
       j.unique_key, nullif(l.limit_key, ''), j.trace_id, 0, j.last_seq, j.started_seq
from job_history j join lane l on l.id = j.lane_id left join worker w on w.id = j.worker_id
where j.id = ?1
