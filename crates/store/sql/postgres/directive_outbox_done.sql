-- An announcement arrived, once. $1 now, $2 number
update stargate.directive_outbox set delivered_at = coalesce($1::timestamptz, now()), problem = null
 where id = $2::bigint and delivered_at is null
returning 1
