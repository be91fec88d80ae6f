-- Only here because a store is moved from SQLite to Postgres and not back.
-- New numbers begin after the old ones.
select setval(pg_get_serial_sequence('stargate.repo', 'id'), coalesce(max(id), 1), max(id) is not null) from stargate.repo
union all
select setval(pg_get_serial_sequence('stargate.push_event', 'id'), coalesce(max(id), 1), max(id) is not null) from
       stargate.push_event
union all
select setval(pg_get_serial_sequence('stargate.webhook', 'id'), coalesce(max(id), 1), max(id) is not null) from stargate.webhook
union all
select setval(pg_get_serial_sequence('stargate.webhook_outbox', 'id'), coalesce(max(id), 1), max(id) is not null) from
       stargate.webhook_outbox
