-- Differs from Postgres: pages are merged from streams in the program, some ids a call.
select id from job_history where id < ?1 and id >= ?2 order by id desc limit ?5
