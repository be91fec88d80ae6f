-- The executions a worker holds.
select j.id, j.attempt, j.token from stargate.job j where j.worker_id = $1::integer and j.stage = 3 order by j.id
