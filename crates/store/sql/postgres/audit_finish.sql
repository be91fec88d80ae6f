-- Enters the outcome of an action, once. $1 now, $2 id, $3 outcome
update stargate.stargate_audit set finished_at = greatest(coalesce($1::timestamptz, now()), at), outcome = $3::text
 where id = $2::bigint and outcome is null
