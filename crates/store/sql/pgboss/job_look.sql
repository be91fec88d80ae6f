-- Whose jobs are, in the order asked: the state, whether the mark is ours, the seconds until pg-boss gives it up.
-- $1 queues, $2 ids, $3 retry counts, $4 retry limits, $5 times of start
select j.state::text, j.retry_count = a.retry_count and j.retry_limit = a.retry_limit and j.started_on = a.started_on,
       extract(epoch from least(j.started_on + j.expire_seconds * interval '1 second',
                                j.heartbeat_on + j.heartbeat_seconds * interval '1 second') - pgboss.job_now())::float8,
       j.heartbeat_seconds
  from unnest($1::text[], $2::text[]::uuid[], $3::integer[], $4::integer[], $5::timestamptz[]) with ordinality
       a (name, id, retry_count, retry_limit, started_on, place)
  left join pgboss.job j on j.name = a.name and j.id = a.id
 order by a.place
