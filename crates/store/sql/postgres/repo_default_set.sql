-- The commit of the default branch, and the event that tells it. $1 repository, $2 commit, $3 event, $4 where that began
update stargate.repo set default_oid = $2::text, default_event_id = $3::bigint, default_old_oid = $4::text where id = $1::bigint
