-- The known kinds.
select k.name, k.max_attempts, k.max_crashes from stargate.kind k order by k.name
