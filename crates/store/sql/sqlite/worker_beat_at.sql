-- Only on SQLite: on Postgres the statements that a fence guards look at the worker themselves.
select beat_at from worker where id = ?1
