-- Keeps records aside; the hashes of those that were not known.
-- $1 now, $2 directive, $3 tenant, $4 project, $5 hashes, $6 run, $7 records, $8 causes, $9 reasons, $10 entities, $11 times
insert into stargate.directive_quarantine
       (directive, tenant_id, project_id, record_hash, run_id, record, cause, reason, entity_id, seen, created_at)
select $2::text, $3::text, $4::text, n.hash, $6::text, n.record::json, n.cause, n.reason, n.entity_id, n.times, w.now
  from unnest($5::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[])
       n (hash, record, cause, reason, entity_id, times)
 cross join (select coalesce($1::timestamptz, now()) as now) w
    on conflict (directive, tenant_id, project_id, record_hash) do nothing
returning record_hash
