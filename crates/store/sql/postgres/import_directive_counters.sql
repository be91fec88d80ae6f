-- Only here because a store is moved from SQLite to Postgres and not back.
-- New numbers begin after the old ones, also after those whose rows are gone: receivers know announcements by their numbers.
-- $1 the last announcement, $2 the last quarantined record
select setval(pg_get_serial_sequence('stargate.directive_outbox', 'id'), greatest($1::bigint, 1), $1::bigint > 0),
       setval(pg_get_serial_sequence('stargate.directive_quarantine', 'id'), greatest($2::bigint, 1), $2::bigint > 0),
       (select setval(pg_get_serial_sequence('stargate.kv_override', 'id'), coalesce(max(id), 1), max(id) is not null)
          from stargate.kv_override)
