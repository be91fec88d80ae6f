-- Ends executions without ending the jobs: retry, stale lease, shutdown. The attempt's `processing` event becomes a row,
-- followed by the event that tells why, with the text it had before (json_build_object would add spaces). A job whose end was asked for is left alone: it is to be cancelled instead. So is
-- one whose lease has run out, unless $11 is set.
-- Each row is looked up by "any (array[id])" for the reason that job_finish.sql gives.
--
-- $1 now, $2 ids, $3 attempts, $4 tokens, $5 delays in microseconds (null: keep the due time), $6 give the attempt back,
-- $7 crashes to add, $8 errors, $9 events, $10 their data, $11 also with a lease that has run out
with held as materialized (
    select j.id, j.attempt, j.started_at, j.started_seq, j.last_seq, j.lane_id, w.name as worker,
           f.delay_us, f.give_back, f.crashes, f.error, f.event, f.data
      from unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::boolean[], $7::smallint[], $8::text[], $9::text[],
                  $10::text[]) f (id, attempt, token, delay_us, give_back, crashes, error, event, data)
      join stargate.job j on j.id = any (array[f.id]) and j.attempt = f.attempt and j.token = f.token
      left join stargate.worker w on w.id = j.worker_id
     where not j.cancel_requested
       and ($11::boolean or w.beat_at + j.lease_ms * interval '1 millisecond' > coalesce($1::timestamptz, now()))
     order by j.id
       for update of j
), back as (
    update stargate.job j
       set stage = case when h.delay_us > 0 then 1 else 0 end,
           run_at = case when h.delay_us is null then j.run_at else t.now + h.delay_us * interval '1 microsecond' end,
           attempt = j.attempt - case when h.give_back then 1 else 0 end,
           crash_count = j.crash_count + h.crashes,
           error = coalesce(h.error::json, j.error),
           token = null, lease_ms = null, last_seq = j.last_seq + 1, started_seq = 0
      from held h, (select coalesce($1::timestamptz, now()) as now) t
     where j.id = any (array[h.id])
    returning j.id
), told as (
    insert into stargate.job_event (job_id, seq, at, event, data)
    select h.id, h.started_seq, h.started_at, 'processing',
           format('{"attempt":%s,"worker":%s}', h.attempt, coalesce(to_json(h.worker)::text, 'null'))::json
      from held h where h.started_seq > 0
    union all
    select h.id, h.last_seq + 1, coalesce($1::timestamptz, now()), h.event, h.data::json from held h
), freed as materialized (
    select l.limit_key as key, count(*)::integer as n
      from held h join stargate.lane l on l.id = h.lane_id
     where l.limit_key <> '' group by l.limit_key
), locked as materialized (
    select k.key from stargate.limit_key k where k.key = any (array(select f.key from freed f)) order by k.key for update
), returned as (
    update stargate.limit_key k set running = greatest(k.running - f.n, 0)
      from locked l join freed f on f.key = l.key
     where k.key = l.key
)
select array(select b.id from back b)
