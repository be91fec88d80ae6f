-- Only here because a store is moved from SQLite to Postgres and not back.
-- What was pushed. $1 the rows as a JSON array
with written as (
    insert into stargate.push_event as t (id, repo_id, ref_name, old_oid, new_oid, request_id, pusher, epoch, received_at,
           created_at, processed_at, is_head, follows)
    overriding system value
    select r.id, r.repo_id, r.ref_name, r.old_oid, r.new_oid, r.request_id, r.pusher, r.epoch, 'epoch'::timestamptz +
           r.received_at * interval '1 microsecond', 'epoch'::timestamptz + r.created_at * interval '1 microsecond',
           'epoch'::timestamptz + r.processed_at * interval '1 microsecond', r.is_head <> 0, r.follows
      from json_to_recordset($1::text::json) as r
           (id bigint, repo_id bigint, ref_name text, old_oid text, new_oid text, request_id text, pusher text, epoch bigint,
                  received_at bigint, created_at bigint, processed_at bigint, is_head bigint, follows text)
    returning 1
)
select count(*) from written
