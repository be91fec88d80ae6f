-- A delivery was tried in vain. ?1 number, ?2 why
update directive_outbox set attempts = attempts + 1, problem = ?2 where id = ?1 and delivered_at is null
