-- A delivery was tried in vain. $1 number, $2 why
update stargate.directive_outbox set attempts = attempts + 1, problem = $2::text
 where id = $1::bigint and delivered_at is null
