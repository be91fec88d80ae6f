-- A page by id. $1 the id before it, $2 rows at most
select id, hash, name, grants::text, created_at, expires_at, last_used_at, revoked_at
  from stargate.token where id > $1::text order by id limit $2::bigint
