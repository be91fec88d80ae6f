-- Only here because a store is moved from SQLite to Postgres and not back.
-- Announcements. $1 the rows as a JSON array
with written as (
    insert into stargate.directive_outbox as t (id, topic, key, payload, created_at, attempts, problem, delivered_at)
    overriding system value
    select r.id, r.topic, r.key, r.payload::json, 'epoch'::timestamptz + r.created_at * interval '1 microsecond',
           r.attempts, r.problem, 'epoch'::timestamptz + r.delivered_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id bigint, topic text, key text, payload text, created_at bigint, attempts bigint, problem text,
                  delivered_at bigint)
    returning 1
)
select count(*) from written
