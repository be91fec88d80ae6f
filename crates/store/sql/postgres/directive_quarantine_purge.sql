-- Removes records that were dealt with long ago. $1 now, $2 for how long it is kept, in microseconds, $3 rows at most
-- Rows that somebody else removes at the same time are left to them.
delete from stargate.directive_quarantine
 where id in (select id from stargate.directive_quarantine
               where resolved_at < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
               order by resolved_at limit $3::bigint for update skip locked)
