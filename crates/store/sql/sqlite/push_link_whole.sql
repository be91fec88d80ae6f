-- ?1 an event whose way is whole
update push_event set follows = null where id = ?1
