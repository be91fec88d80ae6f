-- $1 the new heads, $2 those before them, $3 where those ended, for each new one that begins elsewhere
update stargate.push_event e
   set is_head = e.id = any($1::bigint[]),
       follows = coalesce((select n.follows from unnest($1::bigint[], $3::text[]) n (id, follows) where n.id = e.id), e.follows)
 where e.id = any($1::bigint[]) or e.id = any($2::bigint[])
returning e.id
