-- What was recorded of holes. $1 repository, $2 refs, $3 old ends, $4 new ends
select max(e.id), e.ref_name, e.old_oid, e.new_oid
  from unnest($2::text[], $3::text[], $4::text[]) n (ref_name, old_oid, new_oid)
  join stargate.push_event e on e.repo_id = $1::bigint and e.ref_name = n.ref_name and e.old_oid = n.old_oid
   and e.new_oid = n.new_oid and substr(e.request_id, 1, 17) = 'reconcile-before-'
 group by e.ref_name, e.old_oid, e.new_oid
