-- Ends a transaction.
-- Postgres only: the SQLite driver has calls for it.
commit
