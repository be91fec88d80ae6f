select queue, kind, limit_key from lane where id = ?1
