-- $1 now, $2 name, $3 bytes, $4 objects
update stargate.repo set size_bytes = $3::bigint, objects = $4::bigint, sized_at = coalesce($1::timestamptz, now()) where name =
       $2::text
returning id
