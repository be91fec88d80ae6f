-- Removes old writes by hand. $1 now, $2 for how long it is kept, in microseconds, $3 rows at most
-- Rows that somebody else removes at the same time are left to them.
-- Numbers rise with the time: only the first ones are looked at.
delete from stargate.kv_override
 where id in (select id from stargate.kv_override order by id limit $3::bigint for update skip locked)
   and at < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
