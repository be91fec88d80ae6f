-- Ends executions: out of the hot table, into the history, with what they held of their limit keys given back.
-- One statement for a whole batch; a fence that does not match changes nothing and is not answered. Only a job that
-- is being run has a token. Its stage is not asked for, because the planner would then begin with all running jobs. And
-- "any (array[id])" leaves it nothing but to look up each: where a vacuum found the table all but empty it would read
-- all of it in the order of ids, to merge it with the few that it expects here.
-- Nor does one whose lease has run out, unless $10 is set. As long as no worker has been silent for the shortest of its
-- leases none has, so normally one look at the workers answers for the whole batch.
-- Unless $8 is set, jobs with children are left alone: those are released in a transaction, because children that
-- were enqueued a moment ago are not visible to this statement.
--
-- $1 now, $2 ids, $3 attempts, $4 tokens, $5 states, $6 results, $7 errors, $8 also with children, $9 crashes to add,
-- $10 also with a lease that has run out
with gone as (
    delete from stargate.job j
     using unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::smallint[], $6::text[], $7::text[])
           f (id, attempt, token, state, result, error)
     where j.id = any (array[f.id]) and j.attempt = f.attempt and j.token = f.token and ($8::boolean or not j.has_children)
       and ($10::boolean
            or not exists (select from stargate.worker w
                            where w.gone_at is null
                              and w.beat_at + w.lease_min_ms * interval '1 millisecond' <= coalesce($1::timestamptz, now()))
            or (select w.beat_at from stargate.worker w where w.id = j.worker_id) + j.lease_ms * interval '1 millisecond'
               > coalesce($1::timestamptz, now()))
    returning j.*, f.state, f.result, f.error as new_error
), kept as (
    insert into stargate.job_history (id, run_at, created_at, started_at, finished_at, lane_id, worker_id, last_seq, started_seq,
           state, priority, attempt, max_attempts, crash_count, progress, cancel_requested, payload, result, error, unique_key, trace_id)
    select g.id, g.run_at, g.created_at, g.started_at, coalesce($1::timestamptz, now()), g.lane_id, g.worker_id, g.last_seq + 1,
           g.started_seq, g.state, g.priority, g.attempt, g.max_attempts, g.crash_count + $9::smallint, g.progress, g.cancel_requested, g.payload,
           g.result::json, case when g.state = 2 then null else coalesce(g.new_error::json, g.error) end, g.unique_key, g.trace_id
      from gone g
), heard as (
    delete from stargate.job_cancel c using gone g
     where g.cancel_requested and c.worker_id = g.worker_id and c.job_id = g.id
), freed as materialized (
    select l.limit_key as key, count(*)::integer as n
      from gone g join stargate.lane l on l.id = g.lane_id
     where l.limit_key <> '' group by l.limit_key
), locked as materialized (
    select k.key from stargate.limit_key k where k.key = any (array(select f.key from freed f)) order by k.key for update
), returned as (
    update stargate.limit_key k set running = greatest(k.running - f.n, 0)
      from locked l join freed f on f.key = l.key
     where k.key = l.key
    returning k.concurrency
)
select array(select g.id from gone g), array(select g.id from gone g where g.has_children),
       (select pg_notify('stargate_jobs', '')::text where exists (select from returned r where r.concurrency is not null))
