-- Ends a job badly, whatever retries it had left, and puts a copy into its dead letter queue as pg-boss does.
-- $1 queue, $2 id, $3 retry count, $4 retry limit, $5 time of start, $6 seconds it might take, $7 retries used, $8 output
with failed as (
    update pgboss.job j
       set state = 'failed', completed_on = pgboss.job_now(), output = $8::text::jsonb, retry_count = $7::integer,
           expire_seconds = $6::integer, heartbeat_on = null
     where j.name = $1::text and j.id = $2::text::uuid and j.state <= 'active'
       and j.retry_count = $3::integer and j.retry_limit = $4::integer and j.started_on = $5::timestamptz
    returning j.*
), dead as (
    insert into pgboss.job (name, priority, data, retry_limit, retry_backoff, retry_delay, start_after, created_on, keep_until,
           deletion_seconds, expire_seconds, singleton_key, group_id, group_tier, heartbeat_seconds, source_name, source_id,
           source_created_on, source_retry_count, source_output, source_root_id, trace_context)
    select f.dead_letter, f.priority, f.data, q.retry_limit, q.retry_backoff, q.retry_delay, pgboss.job_now(), pgboss.job_now(),
           pgboss.job_now() + q.retention_seconds * interval '1 second', q.deletion_seconds, q.expire_seconds, f.singleton_key,
           f.group_id, f.group_tier, q.heartbeat_seconds, f.name, f.id, f.created_on, f.retry_count, f.output,
           coalesce(f.source_root_id, f.id), f.trace_context
      from failed f join pgboss.queue q on q.name = f.dead_letter
)
select 1 from failed
