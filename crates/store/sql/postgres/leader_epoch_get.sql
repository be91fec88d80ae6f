-- The epoch of the newest term; 0 before the first.
select epoch from stargate.leader_epoch
