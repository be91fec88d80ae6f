-- Which of these entities are there. Key by key through the whole primary key: `= any` would have a planner that knows
-- nothing of a young table read all rows of its owner. `offset 0` keeps it from rearranging.
-- $1 tenant, $2 project, $3 directive, $4 entities
select t.entity_id, t.hash, t.version
  from unnest($4::text[]) k (entity_id)
 cross join lateral (select entity_id, hash, version from {table} t
                      where t.tenant_id = $1::text and t.project_id = $2::text and t.directive = $3::text
                        and t.entity_id = k.entity_id offset 0) t
