-- Removes a few old events, but no head of a ref that is there; what their hooks were to hear goes with them. $1 now, $2 age in seconds, $3 rows at most
delete from stargate.push_event where id in (
    select id from stargate.push_event
     where processed_at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 second'
       and (not is_head or ltrim(new_oid, '0') = '')
     order by processed_at limit $3::bigint for update skip locked)
