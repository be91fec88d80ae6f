-- Those whose follow-ups are missing, which are few. ?1 the number before which to begin, ?2 rows at most, ?3 the repository or null
select e.id, r.name, e.ref_name, e.old_oid, e.new_oid, e.pusher, e.request_id, e.epoch, e.received_at, e.created_at, e.processed_at
  from push_event e join repo r on r.id = e.repo_id
 where e.processed_at is null and (?3 is null or r.name = ?3) and e.id < ?1 order by e.id desc limit ?2
