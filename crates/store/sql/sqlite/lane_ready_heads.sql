-- Only on SQLite: the program merges the lanes, which Postgres does inside job_claim.sql.
-- The next jobs of one lane, read from the index alone.
select priority, run_at, id from job where stage = 0 and lane_id = ?1
order by priority desc, run_at, id limit ?2 offset ?3
