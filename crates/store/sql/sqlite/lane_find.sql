-- The lane of a queue, kind and key. Differs from Postgres: one at a time, as there is no round trip to save.
select id from lane where queue = ?1 and kind = ?2 and limit_key = ?3
