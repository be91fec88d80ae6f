-- Has failed jobs run again, with as many further attempts as they had been given. What was read off the finished rows
-- becomes rows of their timelines, with the text it had before (json_build_object would add spaces).
--
-- $1 now, $2 ids, $3 who notifies, $4 open parents, $5 another payload or null, $6 the data of its event
with at as (
    select coalesce($1::timestamptz, now()) as now
), gone as (
    delete from stargate.job_history h where h.id = any ($2::bigint[]) and h.state = 3 returning h.*
), back as (
    insert into stargate.job (id, run_at, created_at, started_at, lane_id, worker_id, last_seq, started_seq, stage, priority, attempt,
           max_attempts, crash_count, blockers, progress, payload, unique_key, trace_id, error)
    overriding system value
    select g.id, at.now, g.created_at, g.started_at, g.lane_id, g.worker_id,
           g.last_seq + case when $5::text is null then 1 else 2 end, 0,
           case when $4::smallint > 0 then 2 else 0 end, g.priority, g.attempt,
           least(g.attempt + g.max_attempts, 32767), 0, $4::smallint, g.progress, coalesce($5::text::json, g.payload), g.unique_key,
           g.trace_id, g.error
      from gone g, at
), told as (
    insert into stargate.job_event (job_id, seq, at, event, data)
    select g.id, g.started_seq, g.started_at, 'processing',
           format('{"attempt":%s,"worker":%s}', g.attempt, coalesce(to_json(w.name)::text, 'null'))::json
      from gone g left join stargate.worker w on w.id = g.worker_id where g.started_seq > 0
    union all
    select g.id, g.last_seq, g.finished_at, 'failed',
           case when g.error is null then '{}' else
           format('{"class":%s,"code":%s,"message":%s}', to_json(g.error ->> 'class'), to_json(g.error ->> 'code'),
                  to_json(g.error ->> 'message')) end::json from gone g
    union all
    select g.id, g.last_seq + 1, at.now, 'edited', $6::text::json from gone g, at where $5::text is not null
    union all
    select g.id, g.last_seq + case when $5::text is null then 1 else 2 end, at.now, 'requeued:operator', '{}' from gone g, at
)
select g.id, pg_notify('stargate_jobs', $3::text)::text from gone g
