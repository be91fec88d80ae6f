-- Records of a directive that are kept aside, newest first. $1 below which number, $2 rows at most, $3 directive
select id, directive, tenant_id, project_id, run_id, record::text, cause, reason, entity_id, seen, created_at, resolved_at
  from stargate.directive_quarantine
 where directive = $3::text and id < $1::bigint and resolved_at is null order by id desc limit $2::bigint
