-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of pause as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'scope', scope, 'name', name
), scope, name
from pause where (?1 is null or (scope, name) > (?1, ?2)) order by scope, name limit ?3
