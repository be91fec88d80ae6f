-- The lanes of queues, kinds and keys, in the order given; null where there is none. $1 queues, $2 kinds, $3 keys
select l.id
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality n (queue, kind, limit_key, place)
  left join stargate.lane l on l.queue = n.queue and l.kind = n.kind and l.limit_key = n.limit_key
 order by n.place
