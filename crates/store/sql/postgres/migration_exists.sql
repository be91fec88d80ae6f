-- Whether the migrator has ever been here.
-- Only on Postgres: a store may be looked at without being migrated; SQLite migrates whenever it opens a file.
select to_regclass('stargate.migration') is not null
