-- Only here because a store is moved from SQLite to Postgres and not back.
-- No job can come in before its lane is there, so this keeps everybody but readers out until the move is committed.
lock table stargate.lane, stargate.meta, stargate.repo, stargate.webhook, stargate.token, stargate.kv, stargate.directive_run,
           stargate.directive_sink, stargate.stargate_audit in share row exclusive mode
