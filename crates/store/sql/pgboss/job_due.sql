-- Locks due jobs of a queue in pg-boss's own order and by the rules of its policies: of a key with one active job at a time
-- nothing while one is active and one at most; of a strict order only the head of each key, and none behind a job that is
-- active, waits for a retry or has failed. What others have locked is theirs.
--
-- $1 queue, $2 jobs at most, $3 ids that are left alone
with due as (
    select j.id, j.data, j.priority, j.retry_limit, j.retry_delay, j.retry_backoff, j.retry_delay_max, j.created_on, j.policy,
           j.singleton_key, j.expire_seconds, j.trace_context,
           -- As pg-boss counts: every start but the first is a retry.
           j.retry_count + case when j.started_on is null then 0 else 1 end as retry_count
      from pgboss.job j
     where j.name = $1::text and j.state < 'active' and not j.blocked and j.start_after <= pgboss.job_now()
       and j.id <> all ($3::text[]::uuid[])
       and not (coalesce(j.policy, '') in ('singleton', 'stately') and exists (
           select from pgboss.job a
            where a.name = j.name and a.state = 'active' and a.policy = j.policy
              and coalesce(a.singleton_key, '') = coalesce(j.singleton_key, '')))
       and not (coalesce(j.policy, '') = 'key_strict_fifo' and (exists (
           select from pgboss.job b
            where b.name = j.name and b.singleton_key = j.singleton_key and b.state in ('active', 'retry', 'failed')
              and b.policy = 'key_strict_fifo' and b.id <> j.id) or exists (
           select from pgboss.job h
            where h.name = j.name and h.singleton_key = j.singleton_key and h.state < 'active' and not h.blocked
              and h.policy = 'key_strict_fifo' and h.start_after <= pgboss.job_now()
              and (h.state > j.state or h.state = j.state and (h.created_on, h.id) < (j.created_on, j.id)))))
     order by j.priority desc, j.created_on
     limit $2::bigint
       for update of j skip locked
), ranked as (
    select d.*, row_number() over (partition by coalesce(d.singleton_key, '') order by d.priority desc, d.created_on, d.id) as place
      from due d
)
select r.id::text, r.data::text, r.priority, r.retry_limit, r.retry_count, r.retry_delay, r.retry_backoff, r.retry_delay_max,
       r.expire_seconds, r.trace_context ->> 'traceparent', pgboss.job_now()
  from ranked r
 where r.place = 1 or coalesce(r.policy, '') not in ('singleton', 'stately')
 order by r.priority desc, r.created_on
