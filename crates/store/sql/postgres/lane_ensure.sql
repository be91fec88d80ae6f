-- The lanes of queues, kinds and keys, made where missing; null where nobody registered the kind.
-- Only on Postgres: many lanes in one round trip; SQLite asks for one at a time (lane_find.sql, lane_insert.sql).
select stargate.lane_of(l.queue, l.kind, l.limit_key)
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality l (queue, kind, limit_key, place)
 order by l.place
