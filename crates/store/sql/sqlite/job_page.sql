-- Differs from Postgres: pages are merged from streams in the program, one step a call.
select max(id) from job where id < ?1
