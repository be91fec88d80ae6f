-- The commit of the default branch, and the event that tells it. ?1 repository, ?2 commit, ?3 event, ?4 where that began
update repo set default_oid = ?2, default_event_id = ?3, default_old_oid = ?4 where id = ?1
