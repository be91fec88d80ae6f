-- Rows of the hot table that the last vacuum could not remove, and those that died since.
-- Only on Postgres: SQLite keeps none.
select pg_stat_get_dead_tuples('stargate.job'::regclass)
