-- Only here because a store is moved from SQLite to Postgres and not back.
-- No term begins, and no leader writes, until the move is committed. Before the other locks: a leader takes this one first.
lock table stargate.leader_epoch in exclusive mode
