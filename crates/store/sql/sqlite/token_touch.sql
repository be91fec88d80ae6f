-- Notes a use if the last one is old enough. ?1 now, ?2 id, ?3 seconds between two notes
update token set last_used_at = ?1 where id = ?2 and (last_used_at is null or last_used_at <= ?1 - ?3 * 1000000)
