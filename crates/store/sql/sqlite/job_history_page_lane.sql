-- Differs from Postgres: pages are merged from streams in the program, one step a call.
select max(id) from job_history where lane_id = ?3 and state = ?4 and id < ?1
