-- Writes by hand, newest first. $1 and $2 between which keys, $3 rows at most
select key, writer, spec_ref, before::text, after::text, version, at
  from stargate.kv_override where key >= $1::text and key < $2::text order by id desc limit $3::bigint
