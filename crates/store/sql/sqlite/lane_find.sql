select id from lane where queue = ?1 and kind = ?2 and limit_key = ?3
