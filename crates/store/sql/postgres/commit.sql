-- Ends a transaction.
-- Only on Postgres: the writer of SQLite ends its transactions itself, on the one connection that writes.
commit
