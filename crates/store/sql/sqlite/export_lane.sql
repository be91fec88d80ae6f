-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of lane as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'queue', queue, 'kind', kind, 'limit_key', limit_key
), id, null
from lane where id > coalesce(?1, -1) order by id limit ?3
