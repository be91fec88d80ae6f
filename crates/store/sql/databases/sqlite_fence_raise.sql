-- Raises the fence of a directive and answers the highest version seen. ?1 tenant, ?2 project, ?3 directive, ?4 version
insert into stargate_fence (tenant_id, project_id, directive, version)
values (?1, ?2, ?3, ?4)
    on conflict (tenant_id, project_id, directive)
    do update set version = max(stargate_fence.version, excluded.version)
returning version
