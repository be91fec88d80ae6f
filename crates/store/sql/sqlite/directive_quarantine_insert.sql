-- Keeps a record aside; no row if it is known.
-- ?1 now, ?2 directive, ?3 tenant, ?4 project, ?5 hash, ?6 run, ?7 record, ?8 cause, ?9 reason, ?10 entity
insert into directive_quarantine (directive, tenant_id, project_id, record_hash, run_id, record, cause, reason, entity_id, created_at)
values (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?1)
    on conflict (directive, tenant_id, project_id, record_hash) do nothing
returning id
