-- An announcement arrived, once. ?1 now, ?2 number
update directive_outbox set delivered_at = ?1, problem = null where id = ?2 and delivered_at is null
returning 1
