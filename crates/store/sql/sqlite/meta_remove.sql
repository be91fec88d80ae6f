delete from meta where key = ?1
