-- Only here because a store is moved from SQLite to Postgres and not back.
-- How many rows there are to move, for the progress that people see.
select 'kind', count(*) from kind
union all select 'lane', count(*) from lane
union all select 'worker', count(*) from worker
union all select 'limit_rule', count(*) from limit_rule
union all select 'limit_key', count(*) from limit_key
union all select 'pause', count(*) from pause
union all select 'schedule', count(*) from schedule
union all select 'idempotency', count(*) from idempotency
union all select 'job_history', count(*) from job_history
union all select 'job', count(*) from job
union all select 'job_event', count(*) from job_event
union all select 'job_parent', count(*) from job_parent
union all select 'job_cancel', count(*) from job_cancel
union all select 'source_link', count(*) from source_link
union all select 'leader_term', count(*) from leader_term
union all select 'repo', count(*) from repo
union all select 'push_event', count(*) from push_event
union all select 'webhook', count(*) from webhook
union all select 'webhook_outbox', count(*) from webhook_outbox
union all select 'token', count(*) from token
union all select 'kv', count(*) from kv
union all select 'kv_override', count(*) from kv_override
union all select 'directive_run', count(*) from directive_run
union all select 'directive_quarantine', count(*) from directive_quarantine
union all select 'directive_outbox', count(*) from directive_outbox
union all select 'directive_sink', count(*) from directive_sink
union all select 'stargate_audit', count(*) from stargate_audit
