delete from pause where scope = ?1 and name = ?2
