-- Differs from Postgres, where a function does all that begins a term.
update leader_term set ended_at = ?1, reason = 'superseded' where ended_at is null
