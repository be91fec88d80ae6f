-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of schedule as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'name', name, 'cron', cron, 'time_zone', time_zone, 'kind', kind, 'queue', queue,
    'payload', payload, 'priority', priority, 'next_at', next_at, 'last_at', last_at
), name, null
from schedule where (?1 is null or name > ?1) order by name limit ?3
