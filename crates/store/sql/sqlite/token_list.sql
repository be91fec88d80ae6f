-- A page by id. ?1 the id before it, ?2 rows at most
select id, hash, name, grants, created_at, expires_at, last_used_at, revoked_at
  from token where id > ?1 order by id limit ?2
