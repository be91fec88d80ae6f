-- Differs from Postgres: pages are merged from streams in the program, some ids a call.
select id from job where lane_id = ?3 and id < ?1 and id >= ?2 and stage <> 3 order by id desc limit ?5
