-- Ids of a page of finished jobs of a queue, kind or limit key, newest first.
-- Lane and id are compared as a pair, so that only the index by both fits: by id alone a rare lane is far away.
--
-- $1 before (exclusive), $2 no smaller id, $3 states, $4 since, $5 limit, $6 until, $7 kind, $8 queue, $9 limit key
with lanes as materialized (
    select l.id from stargate.lane l
     where l.kind = coalesce($7::text, l.kind) and l.queue = coalesce($8::text, l.queue)
       and l.limit_key = coalesce($9::text, l.limit_key)
), page as (
    (select p.id from lanes cross join lateral (
        select h.id from stargate.job_history h
         where h.state = 2 and (h.lane_id, h.id) < (lanes.id, $1::bigint) and (h.lane_id, h.id) >= (lanes.id, $2::bigint)
           and ($4::timestamptz is null or h.created_at >= $4::timestamptz) and ($6::timestamptz is null or h.created_at < $6::timestamptz)
         order by h.lane_id desc, h.id desc limit $5::integer) p
      where 2 = any ($3::smallint[]))
    union all
    (select p.id from lanes cross join lateral (
        select h.id from stargate.job_history h
         where h.state <> 2 and h.state = any ($3::smallint[]) and (h.lane_id, h.id) < (lanes.id, $1::bigint)
           and (h.lane_id, h.id) >= (lanes.id, $2::bigint)
           and ($4::timestamptz is null or h.created_at >= $4::timestamptz) and ($6::timestamptz is null or h.created_at < $6::timestamptz)
         order by h.lane_id desc, h.id desc limit $5::integer) p
      where 3 = any ($3::smallint[]) or 4 = any ($3::smallint[]))
)
select p.id from page p order by p.id desc limit $5::integer
