-- Only here because a store is moved from SQLite to Postgres and not back.
-- Finished jobs. SQLite does not keep whether their end was asked for. $1 the rows as a JSON array, $2 what is added to workers' numbers
with written as (
    insert into stargate.job_history as t (id, lane_id, state, priority, attempt, max_attempts, crash_count, progress, last_seq, started_seq, worker_id,
        run_at, created_at, started_at, finished_at, payload, result, unique_key, trace_id, error, cancel_requested)
    select r.id, r.lane_id, r.state::smallint, r.priority::smallint, r.attempt::smallint, r.max_attempts::smallint,
           r.crash_count::smallint, r.progress::smallint, r.last_seq, r.started_seq, r.worker_id + $2::integer,
           'epoch'::timestamptz + r.run_at * interval '1 microsecond', 'epoch'::timestamptz + r.created_at * interval
           '1 microsecond', 'epoch'::timestamptz + r.started_at * interval '1 microsecond', 'epoch'::timestamptz +
           r.finished_at * interval '1 microsecond', r.payload::json, r.result::json, r.unique_key, r.trace_id,
           r.error::json, false
      from json_to_recordset($1::text::json) as r
           (id bigint, lane_id integer, state integer, priority integer, attempt integer, max_attempts integer,
            crash_count integer, progress integer, last_seq integer, started_seq integer, worker_id integer, run_at
            bigint, created_at bigint, started_at bigint, finished_at bigint, payload text, result text, unique_key
            text, trace_id text, error text)
    returning 1
)
select count(*) from written
