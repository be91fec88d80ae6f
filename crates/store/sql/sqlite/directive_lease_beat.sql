-- Renews a lease that is held, and never makes it shorter; no row if it is not held. ?1 now, ?2 key, ?3 version, ?4 how long
update kv set expires_at = max(expires_at, ?1 + ?4), updated_at = ?1
 where key = ?2 and version = ?3 and value is not null and expires_at > ?1
returning 1
