-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of directive_run as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'directive', directive, 'tenant_id', tenant_id, 'project_id', project_id, 'engine', engine,
           'workflow_id', workflow_id, 'worker', worker, 'lease_key', lease_key, 'outcome', outcome, 'pages', pages,
           'created', created, 'updated', updated, 'unchanged', unchanged, 'failed', failed, 'cursor', cursor,
           'beat', beat, 'cancel_asked', cancel_asked, 'source_ended', source_ended, 'error', error,
           'batch_request', batch_request, 'batch_lease', batch_lease, 'batch_created', batch_created,
           'batch_updated', batch_updated, 'batch_unchanged', batch_unchanged, 'batch_failed', batch_failed,
           'batch_cursor', batch_cursor, 'started_at', started_at, 'updated_at', updated_at, 'ended_at', ended_at
), id, null
from directive_run where id > coalesce(?1, '') order by id limit ?3
