-- A write by hand. $1 now, $2 key, $3 writer, $4 spec_ref, $5 what was there, $6 what is there, $7 its version
insert into stargate.kv_override (key, writer, spec_ref, before, after, version, at)
values ($2::text, $3::text, $4::text, $5::text::json, $6::text::json, $7::bigint, coalesce($1::timestamptz, clock_timestamp()))
