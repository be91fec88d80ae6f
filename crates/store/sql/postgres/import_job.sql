-- Only here because a store is moved from SQLite to Postgres and not back.
-- Unfinished jobs, with the leases of those that are running. $1 the rows as a JSON array, $2 what is added to workers' numbers
with written as (
    insert into stargate.job as t (id, lane_id, stage, priority, attempt, max_attempts, crash_count, progress, blockers, has_children,
        cancel_requested, last_seq, started_seq, worker_id, lease_ms, token, run_at, created_at, started_at, payload,
        unique_key, trace_id, error)
    overriding system value
    select r.id, r.lane_id, r.stage::smallint, r.priority::smallint, r.attempt::smallint, r.max_attempts::smallint,
           r.crash_count::smallint, r.progress::smallint, r.blockers::smallint, r.has_children <> 0,
           r.cancel_requested <> 0, r.last_seq, r.started_seq, r.worker_id + $2::integer, r.lease_ms, r.token,
           'epoch'::timestamptz + r.run_at * interval '1 microsecond', 'epoch'::timestamptz + r.created_at * interval
           '1 microsecond', 'epoch'::timestamptz + r.started_at * interval '1 microsecond', r.payload::json,
           r.unique_key, r.trace_id, r.error::json
      from json_to_recordset($1::text::json) as r
           (id bigint, lane_id integer, stage integer, priority integer, attempt integer, max_attempts integer,
            crash_count integer, progress integer, blockers integer, has_children integer, cancel_requested integer,
            last_seq integer, started_seq integer, worker_id integer, lease_ms integer, token bigint, run_at bigint,
            created_at bigint, started_at bigint, payload text, unique_key text, trace_id text, error text)
    returning 1
)
select count(*) from written
