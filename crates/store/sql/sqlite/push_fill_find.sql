-- What was recorded of a hole. ?1 repository, ?2 ref, ?3 old end, ?4 new end
select max(id) from push_event
 where repo_id = ?1 and ref_name = ?2 and old_oid = ?3 and new_oid = ?4 and substr(request_id, 1, 17) = 'reconcile-before-'
