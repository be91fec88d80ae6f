-- Only on Postgres: the plain case of job_insert, jobs that are due at once and have neither unique key, parents nor
-- trace. Without a conflict to look for and joins per row it takes two thirds of the time.
--
-- The lanes are given once; each row names its place among them. A lane that does not exist has no default number of
-- attempts, and the null is refused: leaving its jobs out would lose them without a word.
--
-- $1 now, $2 lanes, $3 place of each row's lane, $4 payloads, $5 priorities, $6 max_attempts, $7 who notifies
with lane as materialized (
    select array_agg(k.max_attempts order by d.place) as max_attempts
      from unnest($2::integer[]) with ordinality d (lane_id, place)
      left join stargate.lane l on l.id = d.lane_id
      left join stargate.kind k on k.name = l.kind
), new as (
    insert into stargate.job (lane_id, stage, priority, max_attempts, run_at, created_at, payload)
    select ($2::integer[])[n.lane], 0, n.priority,
           case when lane.max_attempts[n.lane] is null then null else coalesce(n.max_attempts, lane.max_attempts[n.lane]) end,
           t.now, t.now, n.payload::json
      from unnest($3::integer[], $4::text[], $5::smallint[], $6::smallint[]) n (lane, payload, priority, max_attempts)
     cross join lane
     cross join (select coalesce($1::timestamptz, now()) as now) t
    returning id
)
select array_agg(id), pg_notify('stargate_jobs', $7::text)::text from new
