-- Takes a worker out that holds no jobs; whether it still holds some.
with gone as (
    update stargate.worker w set gone_at = coalesce($1::timestamptz, now())
     where w.id = $2::integer and w.gone_at is null
       and not exists (select from stargate.job j where j.worker_id = w.id and j.stage = 3)
)
select exists (select from stargate.job j where j.worker_id = $2::integer and j.stage = 3)
