update leader_term set ended_at = max(began_at, ?2), reason = ?3
where epoch = ?1 and ended_at is null
