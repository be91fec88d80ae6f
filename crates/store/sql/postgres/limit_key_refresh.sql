-- Gives every key the rule that now applies to it.
select stargate.limit_apply(null)::text, pg_notify('stargate_jobs', $1::text)::text
