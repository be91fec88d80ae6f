select name from worker where id = ?1
