select e.id, r.name, e.ref_name, e.old_oid, e.new_oid, e.pusher, e.request_id, e.epoch, e.received_at, e.created_at, e.processed_at
  from push_event e join repo r on r.id = e.repo_id
 where e.id = ?1
