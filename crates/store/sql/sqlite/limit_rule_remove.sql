delete from limit_rule where pattern = ?1
