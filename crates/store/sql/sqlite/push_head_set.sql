-- ?1 the new head, ?2 the head before it or null, ?3 where that ended if the new one begins elsewhere
update push_event set is_head = (id = ?1), follows = case id when ?1 then ?3 else follows end where id in (?1, ?2)
