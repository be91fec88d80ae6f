-- Acknowledges jobs that are accepted: from here on they are ours, by the time of start that is written here.
-- $1 queue, $2 ids, $3 retry counts, $4 time of start, $5 seconds until pg-boss may give them up
update pgboss.job j
   set state = 'active', started_on = $4::timestamptz, heartbeat_on = pgboss.job_now(), retry_count = a.retry_count,
       expire_seconds = a.grant_seconds
  from unnest($2::text[]::uuid[], $3::integer[], $5::integer[]) a (id, retry_count, grant_seconds)
 where j.name = $1::text and j.id = a.id and j.state < 'active'
returning j.id::text
