-- Marks an event processed; no row when it was already. ?1 now, ?2 event
update push_event set processed_at = ?1 where id = ?2 and processed_at is null
returning id
