-- Takes the entries of claimed jobs out of the front of the index that the next claim reads. Whoever does it already
-- is not waited for.
-- Postgres only: SQLite frees them at once.
vacuum (skip_locked, index_cleanup on, truncate off) stargate.job
