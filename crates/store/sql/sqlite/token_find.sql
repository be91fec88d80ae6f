-- Differs from Postgres: the time of the look is known to the reader.
select id, hash, name, grants, created_at, expires_at, last_used_at, revoked_at
  from token where id = ?1
