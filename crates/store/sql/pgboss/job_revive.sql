-- pg-boss has given a job up that still runs here, and nobody has taken it since: it is ours again.
-- $1 queue, $2 id, $3 retry count, $4 retry limit, $5 time of start, $6 seconds until pg-boss may give it up
update pgboss.job j
   set state = 'active', heartbeat_on = pgboss.job_now(), output = null,
       expire_seconds = greatest(j.expire_seconds, ceil(extract(epoch from pgboss.job_now() - j.started_on))::integer + $6::integer)
 where j.name = $1::text and j.id = $2::text::uuid and j.state < 'active' and not j.blocked
   and j.retry_count = $3::integer and j.retry_limit = $4::integer and j.started_on = $5::timestamptz
returning 1
