insert into worker (name, kinds, queues, concurrency, lease_min_ms, lease_max_ms, started_at, beat_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) returning id
