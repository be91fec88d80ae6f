select r.id, r.default_branch, r.default_oid, r.default_event_id, r.default_old_oid
  from repo r where r.id = (select e.repo_id from push_event e where e.id = ?1)
