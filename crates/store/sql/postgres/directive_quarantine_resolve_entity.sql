-- Records of entities that became items. Most directives have none: then nothing is looked for. Otherwise they are looked
-- for one by one, because a planner that knows nothing of the table would read all records of the directive instead.
-- $1 now, $2 directive, $3 tenant, $4 project, $5 entities
update stargate.directive_quarantine set resolved_at = coalesce($1::timestamptz, now())
 where id = any (array(
           select q.id
             from unnest($5::text[]) k (entity_id)
            cross join lateral (select id from stargate.directive_quarantine
                                 where directive = $2::text and tenant_id = $3::text and project_id = $4::text
                                   and entity_id = k.entity_id and resolved_at is null offset 0) q
            where exists (select from stargate.directive_quarantine
                           where directive = $2::text and tenant_id = $3::text and project_id = $4::text
                             and resolved_at is null and entity_id is not null)))
