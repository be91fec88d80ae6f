-- The version of the lease under which a directive's rows were last written to another database.
create table if not exists stargate_fence (
    tenant_id  text not null,
    project_id text not null,
    directive  text not null,
    version    integer not null,
    primary key (tenant_id, project_id, directive)
) strict, without rowid
