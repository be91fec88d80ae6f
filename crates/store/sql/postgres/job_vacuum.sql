-- Takes the entries of claimed jobs out of the front of the index that the next claim reads. Whoever does it already
-- is not waited for.
-- Only on Postgres: SQLite frees them at once.
vacuum (skip_locked, index_cleanup on, truncate off) stargate.job
