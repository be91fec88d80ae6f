-- The newest migration that has been run.
select coalesce(max(m.version), 0) from stargate.migration m
