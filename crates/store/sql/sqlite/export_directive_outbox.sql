-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of directive_outbox as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'id', id, 'topic', topic, 'key', key, 'payload', payload, 'created_at', created_at, 'attempts', attempts,
           'problem', problem, 'delivered_at', delivered_at
), id, null
from directive_outbox where id > coalesce(?1, -1) order by id limit ?3
