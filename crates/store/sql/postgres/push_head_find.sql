-- The heads of refs; the row of the repository is locked, so they stay what they are. $1 repository, $2 refs
select e.id, e.ref_name, e.old_oid, e.new_oid, e.request_id
  from stargate.push_event e
 where e.is_head and e.repo_id = $1::bigint and e.ref_name = any($2::text[])
