-- The epoch of the newest term, 0 before the first, and whether that term goes on.
select e.epoch, exists (select from stargate.leader_term t where t.epoch = e.epoch and t.ended_at is null)
  from stargate.leader_epoch e
