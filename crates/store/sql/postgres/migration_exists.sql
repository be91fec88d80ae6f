-- Whether the migrator has ever been here.
-- Postgres only: SQLite keeps its schema version in the file's header.
select to_regclass('stargate.migration') is not null
