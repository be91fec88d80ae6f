-- Only here because a store is moved from SQLite to Postgres and not back.
-- New numbers begin after the old ones, also after those that were purged. $1 the last action
select setval(pg_get_serial_sequence('stargate.stargate_audit', 'id'), greatest($1::bigint, 1), $1::bigint > 0)
