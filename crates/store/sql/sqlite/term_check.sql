-- The epoch of the newest term, 0 before the first, and whether that term goes on.
select e.epoch, exists (select 1 from leader_term t where t.epoch = e.epoch and t.ended_at is null)
  from leader_epoch e
