-- Writes rows of which all are new: how many were written, twice. Looking for each first would cost a third more.
-- $1 now, $2 tenant, $3 project, $4 directive, $5 entities, $6 hashes, $7 bodies, then the mapped columns
with written as (
    insert into {table}
           (tenant_id, project_id, directive, entity_id, hash, version, body, created_at, updated_at{columns})
    select $2::text, $3::text, $4::text, n.entity_id, n.hash, 1, n.body::jsonb, w.now, w.now{values}
      from unnest($5::text[], $6::text[], $7::text[]{arrays}) n (entity_id, hash, body{names})
     cross join (select coalesce($1::timestamptz, now()) as now) w
    returning version
)
select count(*), count(*) from written
