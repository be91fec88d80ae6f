-- Ends a job that an operator has cancelled here.
-- $1 queue, $2 id, $3 retry count, $4 retry limit, $5 time of start, $6 seconds it might take, $7 retries used
update pgboss.job j
   set state = 'cancelled', completed_on = pgboss.job_now(), retry_count = $7::integer, expire_seconds = $6::integer
 where j.name = $1::text and j.id = $2::text::uuid and j.state <= 'active'
   and j.retry_count = $3::integer and j.retry_limit = $4::integer and j.started_on = $5::timestamptz
returning 1
