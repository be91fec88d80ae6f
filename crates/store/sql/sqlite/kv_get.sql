-- A value that is there. ?1 now, ?2 key
select key, value, version, request_id, last_writer, purpose, spec_ref, updated_at
  from kv where key = ?2 and value is not null and (expires_at is null or expires_at > ?1)
