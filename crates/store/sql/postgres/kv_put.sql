-- Compares and writes; no row if something else is there, also if somebody put it there meanwhile.
-- $1 now, $2 key, $3 value or null, $4 the version expected or null, $5 request, $6 its hash, $7 writer, $8 purpose,
-- $9 spec_ref, $10 time to live in microseconds or null
insert into stargate.kv as t
       (key, value, version, request_id, request_hash, last_writer, purpose, spec_ref, expires_at, updated_at)
select $2::text, $3::text::json, 1, $5::text, $6::text, $7::text, $8::text, $9::text,
       w.now + $10::bigint * interval '1 microsecond', w.now
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) w
 where $4::bigint is not distinct from
       (select version from stargate.kv
         where key = $2::text and value is not null and (expires_at is null or expires_at > w.now))
    on conflict (key) do update
   set value = excluded.value, version = t.version + 1, request_id = excluded.request_id,
       request_hash = excluded.request_hash, last_writer = excluded.last_writer, purpose = excluded.purpose,
       spec_ref = excluded.spec_ref, expires_at = excluded.expires_at, updated_at = excluded.updated_at
 where $4::bigint is not distinct from
       case when t.value is not null and (t.expires_at is null or t.expires_at > excluded.updated_at) then t.version end
returning version
