-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of worker as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'name', name, 'kinds', json(kinds), 'queues', json(queues), 'concurrency', concurrency,
    'lease_min_ms', lease_min_ms, 'lease_max_ms', lease_max_ms, 'started_at', started_at, 'beat_at', beat_at, 'gone_at', gone_at
), id, null
from worker where id > coalesce(?1, -1) order by id limit ?3
