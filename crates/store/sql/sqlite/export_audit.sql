-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of stargate_audit as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'at', at, 'actor', actor, 'token_id', token_id, 'role', role, 'action', action, 'target', target,
           'detail', detail, 'request_id', request_id, 'source', source, 'finished_at', finished_at, 'outcome', outcome
), id, null
from stargate_audit where id > coalesce(?1, -1) order by id limit ?3
