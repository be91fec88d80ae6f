-- A page of values by key. ?1 now, ?2 and ?3 between which keys, ?4 the key before the page, ?5 rows at most
select key, value, version, request_id, last_writer, purpose, spec_ref, updated_at
  from kv
 where key >= ?2 and key < ?3 and key > ?4 and value is not null and (expires_at is null or expires_at > ?1)
 order by key limit ?5
