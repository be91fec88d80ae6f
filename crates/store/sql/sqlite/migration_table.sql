create table if not exists migration (
    version  integer primary key,
    name     text not null,
    checksum text not null,
    at       integer not null
) strict
