-- Only here because a store is moved from SQLite to Postgres and not back.
-- Writes by hand. $1 the rows as a JSON array
with written as (
    insert into stargate.kv_override as t (id, key, writer, spec_ref, before, after, version, at)
    overriding system value
    select r.id, r.key, r.writer, r.spec_ref, r.before::json, r.after::json, r.version,
           'epoch'::timestamptz + r.at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id bigint, key text, writer text, spec_ref text, before text, after text, version bigint, at bigint)
    returning 1
)
select count(*) from written
