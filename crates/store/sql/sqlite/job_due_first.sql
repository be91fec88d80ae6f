-- Only on SQLite: on Postgres the claim answers it in the same statement (due_at).
select min(run_at) from job where stage = 1
