-- The version of the lease under which a directive's rows were last written to another database.
create table if not exists public.stargate_fence (
    tenant_id  text collate "C" not null,
    project_id text collate "C" not null,
    directive  text collate "C" not null,
    version    bigint not null,
    primary key (tenant_id, project_id, directive)
)
