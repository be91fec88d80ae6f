-- Only here because a store is moved from SQLite to Postgres and not back.
-- Gives every key the rule that applies to it among those of both sides, and wakes who waits here, at commit.
select stargate.limit_apply(null)::text, pg_notify('stargate_jobs', '')::text
