-- The jobs of a worker that somebody wants to end, beside each whether the worker still holds it: as worker_beat.sql answers it,
-- without a beat. $1 worker
select c.job_id, exists (select from stargate.job j where j.id = c.job_id and j.stage = 3 and j.worker_id = c.worker_id)
  from stargate.job_cancel c where c.worker_id = $1::integer order by c.job_id
