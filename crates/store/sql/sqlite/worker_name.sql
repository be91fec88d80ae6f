-- Only on SQLite: on Postgres the statements that write the timeline join the worker.
select name from worker where id = ?1
