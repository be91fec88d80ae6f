-- Only here because a store is moved from SQLite to Postgres and not back.
-- What is kept aside. $1 the rows as a JSON array
with written as (
    insert into stargate.directive_quarantine as t (id, directive, tenant_id, project_id, record_hash, run_id, record, cause, reason, entity_id, seen,
           created_at, resolved_at)
    overriding system value
    select r.id, r.directive, r.tenant_id, r.project_id, r.record_hash, r.run_id, r.record::json, r.cause, r.reason,
           r.entity_id, r.seen, 'epoch'::timestamptz + r.created_at * interval '1 microsecond',
           'epoch'::timestamptz + r.resolved_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id bigint, directive text, tenant_id text, project_id text, record_hash text, run_id text,
                  record text, cause text, reason text, entity_id text, seen bigint, created_at bigint,
                  resolved_at bigint)
    returning 1
)
select count(*) from written
