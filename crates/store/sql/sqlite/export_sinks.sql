-- Only here because a store is moved from SQLite to Postgres and not back.
-- The tables that directives write to.
select table_name from directive_sink order by table_name
