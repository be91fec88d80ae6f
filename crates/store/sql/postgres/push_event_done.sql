-- Marks an event processed; no row when it was already. $1 now, $2 event
update stargate.push_event set processed_at = coalesce($1::timestamptz, now()) where id = $2::bigint and processed_at is null
returning id
