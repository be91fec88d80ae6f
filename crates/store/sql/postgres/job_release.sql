-- Hands executions back that never began: as if they had not been claimed. A rate's token stays spent. One that did
-- leave events is left alone: its numbers must not be given out again. So is one whose lease has run out.
-- Each row is looked up by "any (array[id])" for the reason that job_finish.sql gives.
--
-- $1 now, $2 ids, $3 attempts, $4 tokens
with back as (
    update stargate.job j
       set stage = 0, attempt = j.attempt - 1, token = null, lease_ms = null, worker_id = null, started_at = null,
           last_seq = j.started_seq - 1, started_seq = 0
      from unnest($2::bigint[], $3::smallint[], $4::bigint[]) f (id, attempt, token)
     where j.id = any (array[f.id]) and j.attempt = f.attempt and j.token = f.token and not j.cancel_requested
       and j.last_seq = j.started_seq
       and (select w.beat_at from stargate.worker w where w.id = j.worker_id) + j.lease_ms * interval '1 millisecond'
           > coalesce($1::timestamptz, now())
    returning j.id, j.lane_id
), freed as materialized (
    select l.limit_key as key, count(*)::integer as n
      from back b join stargate.lane l on l.id = b.lane_id
     where l.limit_key <> '' group by l.limit_key
), locked as materialized (
    select k.key from stargate.limit_key k where k.key = any (array(select f.key from freed f)) order by k.key for update
), returned as (
    update stargate.limit_key k set running = greatest(k.running - f.n, 0)
      from locked l join freed f on f.key = l.key
     where k.key = l.key
)
select array(select b.id from back b)
