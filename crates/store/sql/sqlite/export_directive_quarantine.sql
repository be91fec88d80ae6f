-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of directive_quarantine as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'directive', directive, 'tenant_id', tenant_id, 'project_id', project_id,
           'record_hash', record_hash, 'run_id', run_id, 'record', record, 'cause', cause, 'reason', reason,
           'entity_id', entity_id, 'seen', seen, 'created_at', created_at, 'resolved_at', resolved_at
), id, null
from directive_quarantine where id > coalesce(?1, -1) order by id limit ?3
