-- Only here because an adapter without round trips asks first and then entity by entity.
-- Whether records of known entities are kept aside. ?1 directive, ?2 tenant, ?3 project
select exists (select 1 from directive_quarantine
                where directive = ?1 and tenant_id = ?2 and project_id = ?3 and resolved_at is null and entity_id is not null)
