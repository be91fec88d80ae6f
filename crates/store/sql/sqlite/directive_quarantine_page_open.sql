-- Records of a directive that are kept aside, newest first. The index is named because the planner takes the one over all
-- records for as good. ?1 below which number, ?2 rows at most, ?3 directive
select id, directive, tenant_id, project_id, run_id, record, cause, reason, entity_id, seen, created_at, resolved_at
  from directive_quarantine indexed by directive_quarantine_open where directive = ?3 and id < ?1 and resolved_at is null order by id desc limit ?2
