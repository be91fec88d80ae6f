-- Tells other processes, at commit, that there is something to look at.
-- Only on Postgres: on SQLite other processes watch the data version.
select pg_notify('stargate_jobs', $1::text)::text
