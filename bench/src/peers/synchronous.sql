-- Statements that would let a commit go ahead of the disk are told that it does, and it does not: ours find this function before the
-- server's own. Everything else that they set is set.
create schema bench;

create function bench.set_config(name text, value text, is_local boolean) returns text language sql volatile as $$
    select case when name = 'synchronous_commit' then value else pg_catalog.set_config(name, value, is_local) end
$$;

alter database stargate_bench set search_path = bench, pg_catalog, public;
