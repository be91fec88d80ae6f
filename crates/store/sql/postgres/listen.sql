-- Has this connection told of new jobs.
-- Only on Postgres: on SQLite other processes watch the data version.
listen stargate_jobs
