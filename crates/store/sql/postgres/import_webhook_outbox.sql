-- Only here because a store is moved from SQLite to Postgres and not back.
-- What hooks are to hear. $1 the rows as a JSON array
with written as (
    insert into stargate.webhook_outbox as t (id, event_id, webhook_id, created_at, delivered_at)
    overriding system value
    select r.id, r.event_id, r.webhook_id, 'epoch'::timestamptz + r.created_at * interval '1 microsecond', 'epoch'::timestamptz
           + r.delivered_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id bigint, event_id bigint, webhook_id bigint, created_at bigint, delivered_at bigint)
    returning 1
)
select count(*) from written
