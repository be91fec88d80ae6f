-- Begins a transaction that sees, statement by statement, what others have committed. The server ends it if nothing is heard of its
-- client any more: a machine that was lost, or a wire that was cut, would keep what is locked for hours.
-- Only on Postgres: it names the isolation level. The writer of SQLite begins in its own way, `begin immediate`.
begin isolation level read committed;
set local idle_in_transaction_session_timeout = '5s'
