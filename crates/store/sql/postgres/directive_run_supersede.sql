-- Ends runs whose lease another one takes. $1 now, $2 lease key, $3 the other run, $4 why
update stargate.directive_run
   set outcome = 'failed', error = $4::text, ended_at = coalesce($1::timestamptz, now()),
       updated_at = coalesce($1::timestamptz, now())
 where lease_key = $2::text and ended_at is null and id <> $3::text
