-- Only here because a store is moved from SQLite to Postgres and not back.
-- Repositories. $1 the rows as a JSON array
with written as (
    insert into stargate.repo as t (id, name, default_branch, default_oid, default_old_oid, default_event_id, size_bytes,
           objects, sized_at, pushed_at, created_at)
    overriding system value
    select r.id, r.name, r.default_branch, r.default_oid, r.default_old_oid, r.default_event_id, r.size_bytes, r.objects,
           'epoch'::timestamptz + r.sized_at * interval '1 microsecond',
           'epoch'::timestamptz + r.pushed_at * interval '1 microsecond',
           'epoch'::timestamptz + r.created_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id bigint, name text, default_branch text, default_oid text, default_old_oid text, default_event_id bigint,
                  size_bytes bigint, objects bigint, sized_at bigint, pushed_at bigint, created_at bigint)
    returning 1
)
select count(*) from written
