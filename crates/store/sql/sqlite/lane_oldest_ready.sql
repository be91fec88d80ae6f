-- The oldest job of the next lower priority of a lane: one step of a skip-scan.
select priority, run_at from job where stage = 0 and lane_id = ?1 and priority < ?2
order by priority desc, run_at, id limit 1
