-- Ends jobs that are not being run. They are locked in the order of their ids, as others do.
-- Only on Postgres: on SQLite the job is looked at first (job_cancel_look.sql) and then ended by job_finish.sql.
--
-- $1 now, $2 ids
with locked as materialized (
    select j.id from stargate.job j where j.id = any ($2::bigint[]) and j.stage <> 3 order by j.id for update
), gone as (
    delete from stargate.job j where j.id = any (array(select l.id from locked l)) and j.stage <> 3 returning j.*
), kept as (
    insert into stargate.job_history (id, run_at, created_at, started_at, finished_at, lane_id, worker_id, last_seq, started_seq,
           state, priority, attempt, max_attempts, crash_count, progress, cancel_requested, payload, error, unique_key, trace_id)
    select g.id, g.run_at, g.created_at, g.started_at, coalesce($1::timestamptz, now()), g.lane_id, g.worker_id, g.last_seq + 1,
           g.started_seq, 4, g.priority, g.attempt, g.max_attempts, g.crash_count, g.progress, true, g.payload, g.error,
           g.unique_key, g.trace_id
      from gone g
)
select g.id, g.has_children from gone g
