-- Notes a use if the last one is old enough. $1 now, $2 id, $3 seconds between two notes
update stargate.token set last_used_at = coalesce($1::timestamptz, now())
 where id = $2::text and (last_used_at is null or last_used_at <= coalesce($1::timestamptz, now()) - $3::bigint * interval '1 second')
