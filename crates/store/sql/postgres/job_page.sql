-- Ids of a page of unfinished jobs of all queues and kinds, newest first. The sum keeps the planner off the indexes for
-- one stage, which are not in the order of the page.
--
-- $1 before (exclusive), $2 no smaller id, $3 stages, $4 since, $5 limit, $6 until
select j.id from stargate.job j
 where j.id < $1::bigint and j.id >= $2::bigint and j.stage + 0 = any ($3::smallint[])
   and ($4::timestamptz is null or j.created_at >= $4::timestamptz) and ($6::timestamptz is null or j.created_at < $6::timestamptz)
 order by j.id desc limit $5::integer
