-- Takes a worker out that holds no jobs; whether it still holds some.
-- Only on Postgres: takes out and tells in one round trip; SQLite uses worker_gone.sql and job_held_any.sql.
with gone as (
    update stargate.worker w set gone_at = coalesce($1::timestamptz, now())
     where w.id = $2::integer and w.gone_at is null
       and not exists (select from stargate.job j where j.worker_id = w.id and j.stage = 3)
)
select exists (select from stargate.job j where j.worker_id = $2::integer and j.stage = 3)
