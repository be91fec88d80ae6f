-- The event of one ref of a receive. ?1 repository, ?2 request, ?3 ref, ?4 old end, ?5 new end
select id from push_event where repo_id = ?1 and request_id = ?2 and ref_name = ?3 and old_oid = ?4 and new_oid = ?5
