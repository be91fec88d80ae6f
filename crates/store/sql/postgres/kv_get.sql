-- A value that is there. $1 now, $2 key
select key, value::text, version, request_id, last_writer, purpose, spec_ref, updated_at
  from stargate.kv
 where key = $2::text and value is not null
   and (expires_at is null or expires_at > coalesce($1::timestamptz, clock_timestamp()))
