-- $1 the new heads, $2 those before them
update stargate.push_event set is_head = id = any($1::bigint[]) where id = any($1::bigint[]) or id = any($2::bigint[])
returning id
