-- Of these items those that are new or differ: their place from 1, and the version of the row, null if there is none. Key
-- by key through the whole primary key: `= any` would have a planner that knows nothing of a young table read all rows of
-- its owner. `offset 0` keeps it from rearranging.
-- $1 tenant, $2 project, $3 directive, $4 entities, $5 hashes
select k.place, t.version
  from unnest($4::text[], $5::text[]) with ordinality k (entity_id, hash, place)
  left join lateral (select hash, version from {table} t
                      where t.tenant_id = $1::text and t.project_id = $2::text and t.directive = $3::text
                        and t.entity_id = k.entity_id offset 0) t on true
 where t.hash is distinct from k.hash
