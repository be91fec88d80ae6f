-- A new run. $1 now, $2 id, $3 directive, $4 tenant, $5 project, $6 engine, $7 workflow, $8 worker, $9 lease key, $10 beat
insert into stargate.directive_run
       (id, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, beat, started_at, updated_at)
select $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text::json, w.now, w.now
  from (select coalesce($1::timestamptz, now()) as now) w
