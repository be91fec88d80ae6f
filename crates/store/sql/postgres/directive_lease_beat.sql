-- Renews a lease that is held, and never makes it shorter; no row if it is not held. $1 now, $2 key, $3 version, $4 how long, in microseconds
update stargate.kv k
   set expires_at = greatest(k.expires_at, w.now + $4::bigint * interval '1 microsecond'), updated_at = w.now
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) w
 where k.key = $2::text and k.version = $3::bigint and k.value is not null and k.expires_at > w.now
returning 1
