-- Only here because a store is moved from SQLite to Postgres and not back.
-- Values. $1 the rows as a JSON array
with written as (
    insert into stargate.kv as t (key, value, version, request_id, request_hash, last_writer, purpose, spec_ref, expires_at, updated_at)
    select r.key, r.value::json, r.version, r.request_id, r.request_hash, r.last_writer, r.purpose, r.spec_ref,
           'epoch'::timestamptz + r.expires_at * interval '1 microsecond',
           'epoch'::timestamptz + r.updated_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (key text, value text, version bigint, request_id text, request_hash text, last_writer text,
                  purpose text, spec_ref text, expires_at bigint, updated_at bigint)
    returning 1
)
select count(*) from written
