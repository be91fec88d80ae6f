-- The executions a worker holds: those whose lease has not run out.
select j.id, j.attempt, j.token
  from stargate.worker w join stargate.job j on j.worker_id = w.id and j.stage = 3
 where w.id = $2::integer and w.beat_at + j.lease_ms * interval '1 millisecond' > coalesce($1::timestamptz, now())
 order by j.id
