-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of limit_rule as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'pattern', pattern, 'concurrency', concurrency, 'rate_count', rate_count, 'rate_per_ms', rate_per_ms, 'weight', weight
), pattern, null
from limit_rule where (?1 is null or pattern > ?1) order by pattern limit ?3
