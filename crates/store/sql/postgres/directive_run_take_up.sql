-- A run that goes on. $1 now, $2 id, $3 worker, $4 lease key
update stargate.directive_run set worker = $3::text, lease_key = $4::text, updated_at = coalesce($1::timestamptz, now())
 where id = $2::text
