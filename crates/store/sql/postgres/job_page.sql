-- Ids of a page of unfinished jobs of all queues and kinds, newest first. Jobs that run are found in their own index, which is
-- small: by id they may be far between. The sum keeps the planner off the indexes for one stage, which are not in the order of
-- the page.
--
-- $1 before (exclusive), $2 no smaller id, $3 stages, $4 since, $5 limit, $6 until
with page as (
    (select j.id from stargate.job j
      where 0 = any ($3::smallint[]) and j.id < $1::bigint and j.id >= $2::bigint and j.stage + 0 <> 3
        and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
      order by j.id desc limit $5::integer)
    union all
    (select r.id from (
        select j.id from stargate.job j
         where j.stage = 3 and j.id < $1::bigint and j.id >= $2::bigint
           and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
        offset 0) r
      where 3 = any ($3::smallint[])
      order by r.id desc limit $5::integer)
)
select p.id from page p order by p.id desc limit $5::integer
