-- A page of values by key. $1 now, $2 and $3 between which keys, $4 the key before the page, $5 rows at most
select key, value::text, version, request_id, last_writer, purpose, spec_ref, updated_at
  from stargate.kv
 where key >= $2::text and key < $3::text and key > $4::text and value is not null
   and (expires_at is null or expires_at > coalesce($1::timestamptz, clock_timestamp()))
 order by key limit $5::bigint
