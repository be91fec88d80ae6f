-- Enters the outcome of an action, once. ?1 now, ?2 id, ?3 outcome
update stargate_audit set finished_at = max(?1, at), outcome = ?3 where id = ?2 and outcome is null
