-- A run that goes on. ?1 now, ?2 id, ?3 worker, ?4 lease key
update directive_run set worker = ?3, lease_key = ?4, updated_at = ?1 where id = ?2
