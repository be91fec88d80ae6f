-- Differs from Postgres: pages are merged from streams in the program, one step a call.
select id, lane_id from job where stage = 3
