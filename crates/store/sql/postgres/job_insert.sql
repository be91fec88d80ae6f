-- Inserts jobs in the order given and answers their ids in that order, leaving out those whose unique key is taken.
-- The kind decides how many attempts a job has that does not say. A lane that does not exist is null and so refused:
-- an inner join would leave its jobs out without a word.
--
-- $1 now, $2 lanes, $3 payloads, $4 priorities, $5 run_at (null: now + delay), $6 delay in microseconds, $7 max_attempts,
-- $8 unique keys, $9 trace ids, $10 open parents, $11 who notifies
with new as (
    insert into stargate.job (lane_id, stage, priority, max_attempts, run_at, created_at, payload, unique_key, trace_id, blockers)
    select l.id,
           case when n.blockers > 0 then 2 when d.run_at > t.now then 1 else 0 end,
           n.priority, coalesce(n.max_attempts, k.max_attempts), d.run_at, t.now, n.payload::json, n.unique_key, n.trace_id, n.blockers
      from unnest($2::integer[], $3::text[], $4::smallint[], $5::timestamptz[], $6::bigint[], $7::smallint[], $8::text[], $9::text[],
                  $10::smallint[]) with ordinality
           n (lane_id, payload, priority, run_at, delay_us, max_attempts, unique_key, trace_id, blockers, place)
      left join stargate.lane l on l.id = n.lane_id
      left join stargate.kind k on k.name = l.kind
     cross join (select coalesce($1::timestamptz, now()) as now) t
     cross join lateral (select coalesce(n.run_at, t.now + n.delay_us * interval '1 microsecond') as run_at) d
     order by n.place
    on conflict (unique_key) where unique_key is not null do nothing
    returning id, unique_key
)
select array_agg(id), array_agg(unique_key), pg_notify('stargate_jobs', $11::text)::text from new
