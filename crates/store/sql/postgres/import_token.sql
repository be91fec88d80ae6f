-- Only here because a store is moved from SQLite to Postgres and not back.
-- Tokens. Bytes are not JSON: the hash comes as hex digits. $1 the rows as a JSON array
with written as (
    insert into stargate.token as t (id, hash, name, grants, created_at, expires_at, last_used_at, revoked_at)
    select r.id, decode(r.hash, 'hex'), r.name, r.grants::json,
           'epoch'::timestamptz + r.created_at * interval '1 microsecond',
           'epoch'::timestamptz + r.expires_at * interval '1 microsecond',
           'epoch'::timestamptz + r.last_used_at * interval '1 microsecond',
           'epoch'::timestamptz + r.revoked_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id text, hash text, name text, grants text, created_at bigint, expires_at bigint, last_used_at bigint, revoked_at bigint)
    returning 1
)
select count(*) from written
