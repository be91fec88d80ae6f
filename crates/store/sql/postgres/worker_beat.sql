-- Keeps all leases of a worker alive with one row, and tells which of its jobs are to end.
-- A beat lost in a crash only makes the leases a little shorter, so its commit need not wait for the disk.
with async as materialized (
    select set_config('synchronous_commit', 'off', true)
), beat as (
    update stargate.worker w set beat_at = coalesce($1::timestamptz, now())
      from async
     where w.id = $2::integer and w.gone_at is null
    returning w.id
), wanted as materialized (
    select c.job_id, exists (select from stargate.job j where j.id = c.job_id and j.worker_id = $2::integer and j.stage = 3) as held
      from stargate.job_cancel c where c.worker_id = $2::integer
), settled as (
    delete from stargate.job_cancel c using wanted w
     where c.worker_id = $2::integer and c.job_id = w.job_id and not w.held
)
select exists (select from beat), array(select w.job_id from wanted w where w.held order by w.job_id)
