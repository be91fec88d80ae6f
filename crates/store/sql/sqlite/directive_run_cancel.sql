-- Asks a run to stop. ?1 id
update directive_run set cancel_asked = 1 where id = ?1 and ended_at is null
returning 1
