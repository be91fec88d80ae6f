-- ?3: also after a silence as long as the worker's shortest lease, when what has run out was recovered
update worker set beat_at = ?2
where id = ?1 and gone_at is null and (?3 or beat_at + lease_min_ms * 1000 > ?2)
