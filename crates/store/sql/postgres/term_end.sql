-- Records the end of a term, once. $1 now, $2 epoch, $3 reason
update stargate.leader_term set ended_at = greatest(began_at, coalesce($1::timestamptz, clock_timestamp())), reason = $3::text
where epoch = $2::bigint and ended_at is null
