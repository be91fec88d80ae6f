-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of limit_key as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'key', key, 'concurrency', concurrency, 'rate_count', rate_count, 'rate_per_ms', rate_per_ms, 'weight', weight,
    'running', running, 'tokens', tokens, 'refilled_at', refilled_at, 'vtime', vtime
), key, null
from limit_key where (?1 is null or key > ?1) order by key limit ?3
