-- Only on SQLite: the program decides who is silent; on Postgres worker_silent.sql does, because it has to lock them.
select id, beat_at, lease_min_ms, lease_max_ms from worker where gone_at is null
