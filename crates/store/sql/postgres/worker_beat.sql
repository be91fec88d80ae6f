-- Keeps all leases of a worker alive with one row, and tells which of its jobs are to end. A worker that was silent for
-- the shortest of its leases is left alone unless $3 is set: what has run out is recovered first, never revived.
-- A beat lost in a crash only makes the leases a little shorter, so its commit need not wait for the disk;
-- with $3 it ends a recovery, which is to last. Of two at once the one that waits for the other began before it and must not set
-- the worker back. A beat that is later than the clock is now is from before the clock was set back, and does not count.
--
-- $1 now, $2 worker, $3 also after a long silence; answers whether it beat, whether it is known, and the jobs
with at as materialized (
    select coalesce($1::timestamptz, now()) as now, case when not $3::boolean then set_config('synchronous_commit', 'off', true) end
), beat as (
    update stargate.worker w set beat_at =
           case when w.beat_at <= coalesce($1::timestamptz, clock_timestamp()) then greatest(w.beat_at, at.now) else at.now end
      from at
     where w.id = $2::integer and w.gone_at is null
       and ($3::boolean or w.beat_at + w.lease_min_ms * interval '1 millisecond' > at.now)
    returning w.id
), wanted as materialized (
    select c.job_id, exists (select from stargate.job j where j.id = c.job_id and j.worker_id = $2::integer and j.stage = 3) as held
      from stargate.job_cancel c where c.worker_id = $2::integer
), settled as (
    delete from stargate.job_cancel c using wanted w
     where c.worker_id = $2::integer and c.job_id = w.job_id and not w.held
)
select exists (select from beat), exists (select from stargate.worker w where w.id = $2::integer and w.gone_at is null),
       array(select w.job_id from wanted w where w.held order by w.job_id)
