-- Begins a transaction of a leader, during which no term can begin or end: as stargate.leader_hold does within a statement, for those
-- who ask for the epoch next. Not by that function, because a connection that is only being made, as each hook makes one, would
-- first have to load its language.
-- Only on Postgres: on SQLite the writer's transaction lets nobody else write.
begin isolation level read committed;
set local idle_in_transaction_session_timeout = '3s';
lock table stargate.leader_epoch in row share mode;
set local lock_timeout = '3s';
set local statement_timeout = '10s'
