-- The lanes of queues, kinds and keys, made where missing; null where nobody registered the kind.
-- Only on Postgres: many lanes in one round trip, when lane_find.sql has not found all of them; SQLite makes one at a time
-- (lane_insert.sql).
select stargate.lane_of(l.queue, l.kind, l.limit_key)
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality l (queue, kind, limit_key, place)
 order by l.place
