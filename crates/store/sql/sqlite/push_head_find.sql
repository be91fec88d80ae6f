-- The head of a ref. ?1 repository, ?2 ref
select e.id, e.ref_name, e.old_oid, e.new_oid, e.request_id
  from push_event e
 where e.is_head = 1 and e.repo_id = ?1 and e.ref_name = ?2
