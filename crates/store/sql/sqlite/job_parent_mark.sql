update job set has_children = 1 where id = ?1
