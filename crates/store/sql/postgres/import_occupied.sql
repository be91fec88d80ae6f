-- Only here because a store is moved from SQLite to Postgres and not back.
-- Whether anything is kept here that a move would collide with, or jobs ever were.
select exists (select from stargate.lane) or exists (select from stargate.job) or exists (select from stargate.job_history)
    or exists (select from stargate.repo) or exists (select from stargate.webhook) or exists (select from stargate.token)
    or exists (select from stargate.kv) or exists (select from stargate.directive_run) or exists (select from stargate.directive_sink)
    or exists (select from stargate.stargate_audit)
