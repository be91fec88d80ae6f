-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of job_history as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'lane_id', lane_id, 'state', state, 'priority', priority, 'attempt', attempt,
    'max_attempts', max_attempts, 'crash_count', crash_count, 'progress', progress, 'last_seq', last_seq, 'started_seq', started_seq,
    'worker_id', worker_id, 'run_at', run_at, 'created_at', created_at, 'started_at', started_at, 'finished_at', finished_at,
    'payload', payload, 'result', result, 'unique_key', unique_key, 'trace_id', trace_id, 'error', error
), id, null
from job_history where id > coalesce(?1, -1) order by id limit ?3
