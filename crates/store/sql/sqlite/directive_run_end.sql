-- How a run ended, once. ?1 now, ?2 id, ?3 outcome, ?4 error
update directive_run set outcome = ?3, error = ?4, ended_at = ?1, updated_at = ?1 where id = ?2 and ended_at is null
returning 1
