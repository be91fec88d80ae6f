-- Only here because a store is moved from SQLite to Postgres and not back.
-- Runs. $1 the rows as a JSON array
with written as (
    insert into stargate.directive_run as t (id, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, outcome, pages, created,
           updated, unchanged, failed, cursor, beat, cancel_asked, source_ended, error, batch_request, batch_lease,
           batch_created, batch_updated, batch_unchanged, batch_failed, batch_cursor, started_at, updated_at, ended_at)
    select r.id, r.directive, r.tenant_id, r.project_id, r.engine, r.workflow_id, r.worker, r.lease_key, r.outcome,
           r.pages, r.created, r.updated, r.unchanged, r.failed, r.cursor::json, r.beat::json, r.cancel_asked <> 0,
           r.source_ended <> 0, r.error, r.batch_request, r.batch_lease, r.batch_created, r.batch_updated,
           r.batch_unchanged, r.batch_failed, r.batch_cursor,
           'epoch'::timestamptz + r.started_at * interval '1 microsecond',
           'epoch'::timestamptz + r.updated_at * interval '1 microsecond',
           'epoch'::timestamptz + r.ended_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id text, directive text, tenant_id text, project_id text, engine text, workflow_id text,
                  worker text, lease_key text, outcome text, pages bigint, created bigint, updated bigint,
                  unchanged bigint, failed bigint, cursor text, beat text, cancel_asked bigint, source_ended bigint,
                  error text, batch_request text, batch_lease bigint, batch_created bigint, batch_updated bigint,
                  batch_unchanged bigint, batch_failed bigint, batch_cursor bigint, started_at bigint,
                  updated_at bigint, ended_at bigint)
    returning 1
)
select count(*) from written
