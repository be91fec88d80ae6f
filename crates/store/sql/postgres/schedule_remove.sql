-- Removes a schedule.
delete from stargate.schedule where name = $1::text returning true
