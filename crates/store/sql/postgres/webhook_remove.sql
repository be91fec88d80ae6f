delete from stargate.webhook where id = $1::bigint returning id
