update schedule set last_at = ?2, next_at = ?3 where name = ?1 and next_at = ?2 and ?2 <= ?4
returning kind, queue, payload, priority
