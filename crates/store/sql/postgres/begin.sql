-- Begins a transaction that sees, statement by statement, what others have committed.
-- Only on Postgres: it names the isolation level. The writer of SQLite begins in its own way, `begin immediate`.
begin isolation level read committed
