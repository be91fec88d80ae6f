-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of webhook as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'repo_id', repo_id, 'url', url, 'secret_ref', secret_ref, 'events', events, 'created_at', created_at
), id, null
from webhook where id > coalesce(?1, -1) order by id limit ?3
