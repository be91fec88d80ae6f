-- Records progress and events of running jobs whose lease has not run out. Several notes of one job get consecutive
-- numbers.
-- Each row is looked up by "any (array[id])" for the reason that job_finish.sql gives.
--
-- $1 now, $2 ids, $3 attempts, $4 tokens, $5 progress, $6 events, $7 their data
with f as materialized (
    select f.*, count(f.event) over (partition by f.id, f.attempt, f.token order by f.place) as event_place
      from unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::smallint[], $6::text[], $7::text[]) with ordinality
           f (id, attempt, token, progress, event, data, place)
), one as materialized (
    select f.id, f.attempt, f.token, count(f.event)::integer as events,
           (array_agg(f.progress order by f.place desc) filter (where f.progress is not null))[1] as progress
      from f group by f.id, f.attempt, f.token
), noted as (
    update stargate.job j
       set progress = coalesce(o.progress, j.progress), last_seq = j.last_seq + o.events
      from one o
     where j.id = any (array[o.id]) and j.attempt = o.attempt and j.token = o.token
       and (select w.beat_at from stargate.worker w where w.id = j.worker_id) + j.lease_ms * interval '1 millisecond'
           > coalesce($1::timestamptz, now())
    returning j.id, j.attempt, j.token, j.last_seq - o.events as seq_before
), told as (
    insert into stargate.job_event (job_id, seq, at, event, data)
    select n.id, n.seq_before + f.event_place, coalesce($1::timestamptz, now()), f.event, f.data::json
      from noted n join f on f.id = n.id and f.attempt = n.attempt and f.token = n.token
     where f.event is not null
)
select array(select n.id from noted n)
