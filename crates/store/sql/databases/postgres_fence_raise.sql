-- Raises the fence of a directive, keeps it locked until the rows are committed, and answers the highest version seen.
-- $1 tenant, $2 project, $3 directive, $4 version
insert into public.stargate_fence as kept (tenant_id, project_id, directive, version)
values ($1::text, $2::text, $3::text, $4::bigint)
    on conflict (tenant_id, project_id, directive)
    do update set version = greatest(kept.version, excluded.version)
returning kept.version
