-- Removes runs that ended long ago. $1 now, $2 for how long it is kept, in microseconds, $3 rows at most
-- Rows that somebody else removes at the same time are left to them.
-- They began before they ended, and there is an index on that.
delete from stargate.directive_run
 where id in (select id from stargate.directive_run
               where started_at < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
                 and ended_at < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
               order by started_at, id limit $3::bigint for update skip locked)
