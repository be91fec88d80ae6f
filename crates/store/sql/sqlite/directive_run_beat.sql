-- What a run says of itself; whether it is to stop. ?1 now, ?2 id, ?3 beat
update directive_run set beat = ?3, updated_at = ?1 where id = ?2 and ended_at is null
returning cancel_asked
