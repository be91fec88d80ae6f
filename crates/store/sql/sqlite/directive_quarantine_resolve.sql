-- A record is dealt with, once. ?1 now, ?2 number
update directive_quarantine set resolved_at = ?1 where id = ?2 and resolved_at is null
returning 1
