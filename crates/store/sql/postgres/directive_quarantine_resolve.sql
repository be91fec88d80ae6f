-- Records are dealt with, once. $1 now, $2 numbers
update stargate.directive_quarantine set resolved_at = coalesce($1::timestamptz, now())
 where id = any($2::bigint[]) and resolved_at is null
returning 1
