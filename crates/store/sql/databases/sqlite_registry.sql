-- Which tables of another database were made for directives; those of others are left alone.
create table if not exists stargate_sink (
    table_name text primary key,
    columns    text not null,
    created_at integer not null
) strict
