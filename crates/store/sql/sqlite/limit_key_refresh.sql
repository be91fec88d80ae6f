update limit_key set concurrency = ?2, rate_count = ?3, rate_per_ms = ?4, weight = ?5, tokens = ?6, refilled_at = ?7
where key = ?1
