-- $1 events whose way is whole
update stargate.push_event set follows = null where id = any($1::bigint[]) returning id
