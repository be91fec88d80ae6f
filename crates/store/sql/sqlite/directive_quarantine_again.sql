-- A known record came again. ?1 directive, ?2 tenant, ?3 project, ?4 hash, ?5 cause, ?6 reason, ?7 entity, ?8 times
update directive_quarantine set seen = seen + ?8, cause = ?5, reason = ?6, entity_id = ?7, resolved_at = null
 where directive = ?1 and tenant_id = ?2 and project_id = ?3 and record_hash = ?4
