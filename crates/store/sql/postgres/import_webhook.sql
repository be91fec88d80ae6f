-- Only here because a store is moved from SQLite to Postgres and not back.
-- Hooks. $1 the rows as a JSON array
with written as (
    insert into stargate.webhook as t (id, repo_id, url, secret_ref, events, created_at)
    overriding system value
    select r.id, r.repo_id, r.url, r.secret_ref, r.events::json, 'epoch'::timestamptz + r.created_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id bigint, repo_id bigint, url text, secret_ref text, events text, created_at bigint)
    returning 1
)
select count(*) from written
