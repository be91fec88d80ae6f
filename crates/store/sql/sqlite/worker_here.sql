select id, beat_at, lease_min_ms, lease_max_ms from worker where gone_at is null
