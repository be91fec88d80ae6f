-- The events of refs from the first on that began elsewhere than its ref was believed to be. ?1 the repository, ?2 the number after which to begin, ?3 rows at most
select e.id, e.ref_name, e.old_oid, e.new_oid, e.request_id, e.follows
  from (select repo_id, ref_name, min(id) as first from push_event
         where follows is not null and repo_id = (select id from repo where name = ?1) group by repo_id, ref_name) t
 cross join push_event e
 where e.repo_id = t.repo_id and e.id >= t.first and e.id > ?2 and e.ref_name = t.ref_name
 order by e.id limit ?3
