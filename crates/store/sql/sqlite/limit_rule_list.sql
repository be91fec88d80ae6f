select pattern, concurrency, rate_count, rate_per_ms, weight from limit_rule
order by substr(pattern, -1) = '*', length(pattern) desc, pattern
