-- What a run says of itself; whether it is to stop. $1 now, $2 id, $3 beat
update stargate.directive_run set beat = $3::text::json, updated_at = coalesce($1::timestamptz, now())
 where id = $2::text and ended_at is null
returning cancel_asked
