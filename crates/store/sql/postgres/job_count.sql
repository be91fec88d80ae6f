-- Only on Postgres: on SQLite the program counts what its streams find.
-- How many unfinished jobs there are, counted no further than the limit. Each stage has its own index.
--
-- $1 before (exclusive), $2 no smaller id, $3 stages, $4 since, $5 limit, $6 until, $7 kind, $8 queue, $9 limit key, $10 all lanes
with lanes as materialized (
    select l.id from stargate.lane l
     where l.kind = coalesce($7::text, l.kind) and l.queue = coalesce($8::text, l.queue)
       and l.limit_key = coalesce($9::text, l.limit_key)
)
select count(*) from (
    (select from stargate.job j
      where 0 = any ($3::smallint[]) and j.stage = 0 and ($10::boolean or j.lane_id = any (array(select l.id from lanes l)))
        and j.id < $1::bigint and j.id >= $2::bigint and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
      limit $5::bigint)
    union all
    (select from stargate.job j
      where (1 = any ($3::smallint[]) or 2 = any ($3::smallint[])) and j.stage in (1, 2) and ($10::boolean or j.lane_id = any (array(select l.id from lanes l)))
        and j.id < $1::bigint and j.id >= $2::bigint and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
      limit $5::bigint)
    union all
    (select from stargate.job j
      where 3 = any ($3::smallint[]) and j.stage = 3 and ($10::boolean or j.lane_id = any (array(select l.id from lanes l)))
        and j.id < $1::bigint and j.id >= $2::bigint and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
      limit $5::bigint)
    limit $5::bigint) c
