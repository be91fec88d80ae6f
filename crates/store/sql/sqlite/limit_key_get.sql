select concurrency, rate_count, rate_per_ms, weight, running, tokens, refilled_at, vtime from limit_key where key = ?1
