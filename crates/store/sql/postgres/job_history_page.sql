-- Ids of a page of finished jobs of all queues and kinds, newest first. Each state has its own index, hence the
-- constants.
--
-- $1 before (exclusive), $2 no smaller id, $3 states, $4 since, $5 limit, $6 until
with page as (
    (select h.id from stargate.job_history h
      where 2 = any ($3::smallint[]) and h.state = 2 and h.id < $1::bigint and h.id >= $2::bigint
        and ($4::timestamptz is null or h.created_at >= $4::timestamptz) and ($6::timestamptz is null or h.created_at < $6::timestamptz)
      order by h.id desc limit $5::integer)
    union all
    (select h.id from stargate.job_history h
      where 3 = any ($3::smallint[]) and h.state = 3 and h.id < $1::bigint and h.id >= $2::bigint
        and ($4::timestamptz is null or h.created_at >= $4::timestamptz) and ($6::timestamptz is null or h.created_at < $6::timestamptz)
      order by h.id desc limit $5::integer)
    union all
    (select h.id from stargate.job_history h
      where 4 = any ($3::smallint[]) and h.state = 4 and h.id < $1::bigint and h.id >= $2::bigint
        and ($4::timestamptz is null or h.created_at >= $4::timestamptz) and ($6::timestamptz is null or h.created_at < $6::timestamptz)
      order by h.id desc limit $5::integer)
)
select p.id from page p order by p.id desc limit $5::integer
