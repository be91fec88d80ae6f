-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of kind as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'name', name, 'max_attempts', max_attempts, 'max_crashes', max_crashes
), name, null
from kind where (?1 is null or name > ?1) order by name limit ?3
