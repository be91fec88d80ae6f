-- Undoes a transaction.
-- Only on Postgres: the writer of SQLite undoes single commands by savepoints, on the one connection that writes.
rollback
