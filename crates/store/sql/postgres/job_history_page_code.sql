-- Ids of a page of failed jobs whose error has a code, newest first.
--
-- $1 before (exclusive), $2 no smaller id, $3 the code, $4 since, $5 limit, $6 until, $7 kind, $8 queue, $9 limit key
with lanes as materialized (
    select l.id from stargate.lane l
     where l.kind = coalesce($7::text, l.kind) and l.queue = coalesce($8::text, l.queue)
       and l.limit_key = coalesce($9::text, l.limit_key)
)
select p.id from lanes cross join lateral (
    select h.id from stargate.job_history h
     where h.state = 3 and h.error ->> 'code' = $3::text collate "C" and h.lane_id = lanes.id and h.id < $1::bigint
       and h.id >= $2::bigint and ($4::timestamptz is null or h.created_at >= $4::timestamptz) and ($6::timestamptz is null or h.created_at < $6::timestamptz)
     order by h.id desc limit $5::integer) p
 order by p.id desc limit $5::integer
