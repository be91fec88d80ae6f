-- Only on SQLite: written once at the end of a command; on Postgres the statements that end or give back jobs do it.
update limit_key set running = max(0, running - ?2) where key = ?1 returning concurrency
