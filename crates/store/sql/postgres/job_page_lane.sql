-- Ids of a page of unfinished jobs of a queue, kind or limit key, newest first.
-- Ready jobs have no index by lane and id, which every enqueue would pay for. Of a lane with few of them, all ids are
-- read from the index of ready jobs; one with many is soon met on the way back from the newest id.
--
-- $1 before (exclusive), $2 no smaller id, $3 stages, $4 since, $5 limit, $6 until, $7 kind, $8 queue, $9 limit key
with lanes as materialized (
    select l.id from stargate.lane l
     where l.kind = coalesce($7::text, l.kind) and l.queue = coalesce($8::text, l.queue)
       and l.limit_key = coalesce($9::text, l.limit_key)
), few as materialized (
    select count(*) < 10000 as here
      from (select from stargate.job j
             where 0 = any ($3::smallint[]) and j.stage = 0 and j.lane_id = any (array(select l.id from lanes l)) limit 10000) c
), page as (
    (select r.id from (
        select j.id from stargate.job j
         where j.stage = 0 and j.lane_id = any (array(select l.id from lanes l)) and j.id < $1::bigint and j.id >= $2::bigint
           and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
        offset 0) r
      where 0 = any ($3::smallint[]) and (select f.here from few f)
      order by r.id desc limit $5::integer)
    union all
    (select j.id from stargate.job j
      where 0 = any ($3::smallint[]) and not (select f.here from few f)
        and j.stage + 0 = 0 and j.lane_id = any (array(select l.id from lanes l)) and j.id < $1::bigint and j.id >= $2::bigint
        and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
      order by j.id desc limit $5::integer)
    union all
    (select j.id from lanes l cross join lateral (
        select j.id from stargate.job j
         where j.stage in (1, 2) and j.stage = any ($3::smallint[])
           and (j.lane_id, j.id) < (l.id, $1::bigint) and (j.lane_id, j.id) >= (l.id, $2::bigint)
           and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
         order by j.lane_id desc, j.id desc limit $5::integer) j
      where 1 = any ($3::smallint[]) or 2 = any ($3::smallint[]))
    union all
    (select r.id from (
        select j.id from stargate.job j
         where j.stage = 3 and j.lane_id = any (array(select l.id from lanes l)) and j.id < $1::bigint and j.id >= $2::bigint
           and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
        offset 0) r
      where 3 = any ($3::smallint[])
      order by r.id desc limit $5::integer)
)
select p.id from page p order by p.id desc limit $5::integer
