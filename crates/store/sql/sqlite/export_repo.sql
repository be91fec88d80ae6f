-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of repo as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'name', name, 'default_branch', default_branch, 'default_oid', default_oid, 'default_old_oid', default_old_oid,
           'default_event_id', default_event_id, 'size_bytes', size_bytes, 'objects', objects, 'sized_at', sized_at,
           'pushed_at', pushed_at, 'created_at', created_at
), id, null
from repo where id > coalesce(?1, -1) order by id limit ?3
