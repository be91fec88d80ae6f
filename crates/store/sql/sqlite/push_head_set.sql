-- ?1 the new head, ?2 the head before it or null
update push_event set is_head = (id = ?1) where id in (?1, ?2)
