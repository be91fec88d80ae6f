-- Takes a token back; no row when it was revoked before. ?1 now, ?2 id
update token set revoked_at = ?1 where id = ?2 and revoked_at is null returning id
