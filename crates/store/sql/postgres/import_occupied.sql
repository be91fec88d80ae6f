-- Only here because a store is moved from SQLite to Postgres and not back.
-- Whether jobs are or ever were kept here.
select exists (select from stargate.lane) or exists (select from stargate.job) or exists (select from stargate.job_history)
