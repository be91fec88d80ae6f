-- The heads of a repository by ref. ?1 the repository, ?2 the ref before it, ?3 rows at most
select e.id, e.ref_name, e.old_oid, e.new_oid, e.request_id
  from push_event e
 where e.is_head = 1 and e.repo_id = (select id from repo where name = ?1) and e.ref_name > ?2
 order by e.ref_name limit ?3
