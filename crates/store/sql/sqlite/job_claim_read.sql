-- Differs from Postgres, which returns these columns from the update; here a look-up by id is cheaper.
select attempt, max_attempts, progress, run_at, payload, trace_id from job where id = ?1
