-- Whether an execution holds its job: the fence matches and the lease has not run out.
--
-- $1 now, $2 id, $3 attempt, $4 token
select exists (
    select from stargate.job j join stargate.worker w on w.id = j.worker_id
     where j.id = $2::bigint and j.attempt = $3::smallint and j.token = $4::bigint
       and w.beat_at + j.lease_ms * interval '1 millisecond' > coalesce($1::timestamptz, now()))
