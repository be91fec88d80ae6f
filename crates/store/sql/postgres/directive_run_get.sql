-- A run with what its last batch was answered. $1 id
-- The row is locked by adding: for update.
select id, directive, tenant_id, project_id, engine, workflow_id, outcome, pages, created, updated, unchanged, failed, cursor::text,
       beat::text, cancel_asked, error, started_at, updated_at, ended_at, source_ended,
       batch_request, batch_lease, batch_created, batch_updated, batch_unchanged, batch_failed, batch_cursor
  from stargate.directive_run where id = $1::text
