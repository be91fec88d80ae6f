-- Has this connection told of new jobs.
-- Postgres only: on SQLite other processes watch the data version.
listen stargate_jobs
