-- How a run ended, once. $1 now, $2 id, $3 outcome, $4 error
update stargate.directive_run
   set outcome = $3::text, error = $4::text, ended_at = coalesce($1::timestamptz, now()),
       updated_at = coalesce($1::timestamptz, now())
 where id = $2::text and ended_at is null
returning 1
