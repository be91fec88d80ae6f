-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of job as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'lane_id', lane_id, 'stage', stage, 'priority', priority, 'attempt', attempt,
    'max_attempts', max_attempts, 'crash_count', crash_count, 'progress', progress, 'blockers', blockers, 'has_children', has_children,
    'cancel_requested', cancel_requested, 'last_seq', last_seq, 'started_seq', started_seq, 'worker_id', worker_id, 'lease_ms', lease_ms,
    'token', token, 'run_at', run_at, 'created_at', created_at, 'started_at', started_at, 'payload', payload,
    'unique_key', unique_key, 'trace_id', trace_id, 'error', error
), id, null
from job where id > coalesce(?1, -1) order by id limit ?3
