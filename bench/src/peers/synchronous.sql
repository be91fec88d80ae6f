-- Statements that would let a commit go ahead of the disk do not get their way: ours find this function before the server's own.
-- Everything else that they set is set.
create schema bench;

-- Shows afterwards that they did find it. The number goes back to them, because nobody reads what set_config answers.
create sequence bench.held_back;

create function bench.set_config(name text, value text, is_local boolean) returns text language sql volatile as $$
    select case when name = 'synchronous_commit' then nextval('bench.held_back')::text
                else pg_catalog.set_config(name, value, is_local) end
$$;

do $$ begin
    execute format('alter database %I set search_path = bench, pg_catalog, public', current_database());
end $$;
