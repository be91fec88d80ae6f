-- Differs from Postgres, where a function does all that begins a term.
-- ?1 the epoch that the caller saw
update leader_epoch set epoch = epoch + 1 where epoch = ?1 returning epoch
