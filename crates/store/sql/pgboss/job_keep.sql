-- Keeps pg-boss from giving jobs up that run here: they get their whole time again, counted from now. The time of start
-- stays, because it is what tells our claim from others'.
-- $1 queues, $2 ids, $3 retry counts, $4 retry limits, $5 times of start, $6 seconds until pg-boss may give them up
update pgboss.job j
   set expire_seconds = greatest(j.expire_seconds, ceil(extract(epoch from pgboss.job_now() - j.started_on))::integer + a.grant_seconds),
       heartbeat_on = pgboss.job_now()
  from unnest($1::text[], $2::text[]::uuid[], $3::integer[], $4::integer[], $5::timestamptz[], $6::integer[])
       a (name, id, retry_count, retry_limit, started_on, grant_seconds)
 where j.name = a.name and j.id = a.id and j.state = 'active'
   and j.retry_count = a.retry_count and j.retry_limit = a.retry_limit and j.started_on = a.started_on
