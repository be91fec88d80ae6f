-- What the migrator itself needs, under a lock that lets one process at a time through until it commits.
select pg_advisory_xact_lock(7311205398611);
create schema if not exists stargate;
create table if not exists stargate.migration (
    version    bigint primary key,
    name       text not null,
    checksum   text not null,
    applied_at timestamptz not null default now()
)
