-- Writes rows that are new or differ: how many were written, and how many of them are new.
-- $1 now, $2 tenant, $3 project, $4 directive, $5 entities, $6 hashes, $7 bodies, then the mapped columns
with written as (
    insert into {table} as t
           (tenant_id, project_id, directive, entity_id, hash, version, body, created_at, updated_at{columns})
    select $2::text, $3::text, $4::text, n.entity_id, n.hash, 1, n.body::jsonb, w.now, w.now{values}
      from unnest($5::text[], $6::text[], $7::text[]{arrays}) n (entity_id, hash, body{names})
     cross join (select coalesce($1::timestamptz, now()) as now) w
        on conflict (tenant_id, project_id, directive, entity_id) do update
       set hash = excluded.hash, version = t.version + 1, body = excluded.body, updated_at = excluded.updated_at{sets}
    returning version
)
select count(*), count(*) filter (where version = 1) from written
