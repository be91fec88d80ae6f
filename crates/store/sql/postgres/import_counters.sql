-- Only here because a store is moved from SQLite to Postgres and not back.
-- New numbers begin after the old ones. Workers' numbers were set aside before the first row was written.
-- Whoever led here under a lower epoch is deposed.
-- $1 the last job, $2 the last lane, $3 the virtual time of fair sharing in millionths, $4 the epoch
with clock as (
    update stargate.limit_clock set vtime = greatest(vtime, $3::bigint / 1e6)
), leader as (
    update stargate.leader_epoch set epoch = greatest(epoch, $4::bigint)
)
select setval(pg_get_serial_sequence('stargate.job', 'id'), greatest($1::bigint, 1), $1::bigint > 0),
       setval(pg_get_serial_sequence('stargate.lane', 'id'), greatest($2::bigint, 1), $2::bigint > 0)
