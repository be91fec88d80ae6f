-- Keeps a token; no row when the id is taken. $1 now, $2 id, $3 hash, $4 name, $5 grants, $6 life in microseconds
insert into stargate.token (id, hash, name, grants, created_at, expires_at)
values ($2::text, $3::bytea, $4::text, $5::text::json, coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now()) +
       $6::bigint * interval '1 microsecond')
on conflict (id) do nothing
returning id
