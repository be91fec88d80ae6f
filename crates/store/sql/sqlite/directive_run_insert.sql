-- A new run. ?1 now, ?2 id, ?3 directive, ?4 tenant, ?5 project, ?6 engine, ?7 workflow, ?8 worker, ?9 lease key, ?10 beat
insert into directive_run (id, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, beat, started_at, updated_at)
values (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?1, ?1)
