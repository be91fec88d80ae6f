-- Removes old actions. $1 now, $2 age in milliseconds, $3 at most
with old as materialized (
    select a.id from stargate.stargate_audit a
     where a.at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 millisecond' order by a.at limit $3::integer
), gone as (
    delete from stargate.stargate_audit a where a.id = any (array(select o.id from old o)) returning 1
)
select count(*) from gone
