-- Differs from Postgres: pages are merged from streams in the program, some ids a call.
-- Failed jobs of a lane whose error has this code.
select id from job_history
where state = 3 and json_extract(error, '$.code') = ?6 and lane_id = ?3 and id < ?1 and id >= ?2
order by id desc limit ?5
