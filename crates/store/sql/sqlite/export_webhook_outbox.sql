-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of webhook_outbox as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'event_id', event_id, 'webhook_id', webhook_id, 'created_at', created_at, 'delivered_at', delivered_at
), id, null
from webhook_outbox where id > coalesce(?1, -1) order by id limit ?3
