-- Removes a few old events; what their hooks were to hear goes with them. $1 now, $2 age in seconds, $3 rows at most
delete from stargate.push_event where id in (
    select id from stargate.push_event
     where processed_at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 second'
     order by processed_at limit $3::bigint for update skip locked)
