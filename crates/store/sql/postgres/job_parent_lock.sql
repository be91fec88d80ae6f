-- Locks the unfinished parents of a new job: how many are open, and the first that did not end well with its state.
-- Only on Postgres: SQLite has a single writer, so a parent cannot end meanwhile (job_parent_state.sql).
select p.open, p.broken, p.broken_state from stargate.parents_lock($1::bigint[]) p
