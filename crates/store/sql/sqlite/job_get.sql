select j.id, l.kind, l.queue, null, j.stage, j.priority, j.attempt, j.max_attempts, j.crash_count, j.progress,
       j.payload, null, j.error, w.name, j.run_at, j.created_at, j.started_at, null,
       case j.stage when 3 then w.beat_at + j.lease_ms * 1000 end,
       j.unique_key, nullif(l.limit_key, ''), j.trace_id, j.cancel_requested, j.last_seq, j.started_seq
from job j join lane l on l.id = j.lane_id left join worker w on w.id = j.worker_id
where j.id = ?1
