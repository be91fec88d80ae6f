-- ?1 now, ?2 name, ?3 bytes, ?4 objects
update repo set size_bytes = ?3, objects = ?4, sized_at = ?1 where name = ?2
returning id
