-- Compares and writes; no row if something else is there.
-- ?1 now, ?2 key, ?3 value or null, ?4 the version expected or null, ?5 request, ?6 its hash, ?7 writer, ?8 purpose, ?9 spec_ref,
-- ?10 time to live or null
insert into kv as t (key, value, version, request_id, request_hash, last_writer, purpose, spec_ref, expires_at, updated_at)
select ?2, ?3, 1, ?5, ?6, ?7, ?8, ?9, ?1 + ?10, ?1
 where ?4 is (select version from kv where key = ?2 and value is not null and (expires_at is null or expires_at > ?1))
    on conflict (key) do update
   set value = excluded.value, version = t.version + 1, request_id = excluded.request_id, request_hash = excluded.request_hash,
       last_writer = excluded.last_writer, purpose = excluded.purpose, spec_ref = excluded.spec_ref,
       expires_at = excluded.expires_at, updated_at = excluded.updated_at
returning version
