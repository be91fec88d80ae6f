-- The last request of a key, also one whose value is gone, and the version of what is there. ?1 now, ?2 key
select version, request_id, request_hash, value, expires_at,
       case when value is not null and (expires_at is null or expires_at > ?1) then version end, last_writer
  from kv where key = ?2
