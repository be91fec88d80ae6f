-- The last request of a key, also one whose value is gone, and the version of what is there. $1 now, $2 key
-- A row is locked by adding: for update.
select version, request_id, request_hash, value::text, expires_at,
       case when value is not null and (expires_at is null or expires_at > coalesce($1::timestamptz, clock_timestamp()))
            then version end, last_writer
  from stargate.kv where key = $2::text
