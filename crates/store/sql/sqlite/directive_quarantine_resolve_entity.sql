-- Records of an entity that became an item. ?1 now, ?2 directive, ?3 tenant, ?4 project, ?5 entity
update directive_quarantine set resolved_at = ?1
 where directive = ?2 and tenant_id = ?3 and project_id = ?4 and entity_id = ?5 and resolved_at is null
