-- Only here because a store is moved from SQLite to Postgres and not back.
-- The planner should know at once that the tables are not empty any more.
analyze stargate.job, stargate.job_history, stargate.job_event, stargate.job_parent, stargate.lane, stargate.worker,
        stargate.kv, stargate.directive_run, stargate.directive_outbox
