-- $1 now, $2 delivery
update stargate.webhook_outbox set delivered_at = coalesce($1::timestamptz, now())
 where id = $2::bigint and delivered_at is null returning id
