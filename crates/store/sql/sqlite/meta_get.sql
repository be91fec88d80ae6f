select value from meta where key = ?1
