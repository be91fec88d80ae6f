-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of push_event as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'repo_id', repo_id, 'ref_name', ref_name, 'old_oid', old_oid, 'new_oid', new_oid, 'request_id', request_id,
           'pusher', pusher, 'epoch', epoch, 'received_at', received_at, 'created_at', created_at, 'processed_at',
           processed_at, 'is_head', is_head, 'follows', follows
), id, null
from push_event where id > coalesce(?1, -1) order by id limit ?3
