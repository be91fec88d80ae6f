-- Only here because a store is moved from SQLite to Postgres and not back.
-- Audited actions. $1 the rows as a JSON array
with written as (
    insert into stargate.stargate_audit as t (id, at, actor, token_id, role, action, target, detail, request_id, source, finished_at,
           outcome)
    overriding system value
    select r.id, 'epoch'::timestamptz + r.at * interval '1 microsecond', r.actor, r.token_id, r.role, r.action, r.target,
           r.detail::json, r.request_id, r.source, 'epoch'::timestamptz + r.finished_at * interval '1 microsecond', r.outcome
      from json_to_recordset($1::text::json) as r
           (id bigint, at bigint, actor text, token_id text, role text, action text, target text, detail text, request_id text,
            source text, finished_at bigint, outcome text)
    returning 1
)
select count(*) from written
