-- Only on SQLite: on Postgres the function stargate.lane_of makes the row with the lane.
insert or ignore into limit_key (key, concurrency, rate_count, rate_per_ms, weight, tokens, refilled_at)
values (?1, ?2, ?3, ?4, ?5, coalesce(?3, 0), ?6)
