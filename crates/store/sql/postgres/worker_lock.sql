-- Locks a worker that has not been given up: nobody recovers its jobs or gives it more until we commit.
-- Only on Postgres: SQLite has a single writer.
select w.id from stargate.worker w where w.id = $1::integer and w.gone_at is null for update
