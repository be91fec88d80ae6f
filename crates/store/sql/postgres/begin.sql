-- Begins a transaction that sees, statement by statement, what others have committed.
-- Postgres only: the SQLite driver has calls for it.
begin isolation level read committed
