-- Locks the unfinished parents of a new job: how many are open, and the first that did not end well with its state.
-- Postgres only: SQLite has a single writer.
select p.open, p.broken, p.broken_state from stargate.parents_lock($1::bigint[]) p
