-- The lanes of queues, kinds and keys, made where missing; null where nobody registered the kind.
select stargate.lane_of(l.queue, l.kind, l.limit_key)
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality l (queue, kind, limit_key, place)
 order by l.place
