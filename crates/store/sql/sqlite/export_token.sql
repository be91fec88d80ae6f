-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of token as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'hash', hex(hash), 'name', name, 'grants', grants, 'created_at', created_at, 'expires_at', expires_at,
           'last_used_at', last_used_at, 'revoked_at', revoked_at
), id, null
from token where id > coalesce(?1, '') order by id limit ?3
