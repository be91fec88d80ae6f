update worker set beat_at = ?2 where id = ?1 and gone_at is null
