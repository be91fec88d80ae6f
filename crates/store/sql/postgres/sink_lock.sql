-- Lets one at a time make tables for sinks. The number is arbitrary and used for nothing else.
-- Only on Postgres: on SQLite the writer's transaction lets nobody else write.
select pg_advisory_xact_lock(6013021745209123411)
