-- Differs from Postgres: pages are merged from streams in the program, one step a call.
select max(id) from job_history where state = ?4 and state <> 2 and id < ?1
