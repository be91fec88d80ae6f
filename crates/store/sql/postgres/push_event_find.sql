-- The events of a receive in the order of its refs. $1 repository, $2 request, $3 refs, $4 old ends, $5 new ends
select e.id
  from unnest($3::text[], $4::text[], $5::text[]) with ordinality n (ref_name, old_oid, new_oid, place)
  join stargate.push_event e on e.repo_id = $1::bigint and e.request_id = $2::text
   and e.ref_name = n.ref_name and e.old_oid = n.old_oid and e.new_oid = n.new_oid
 order by n.place
