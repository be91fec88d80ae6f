-- The newest terms, newest first. $1 at most so many
select epoch, instance, address, began_at, ended_at, reason from stargate.leader_term order by epoch desc limit $1::bigint
