insert into limit_rule (pattern, concurrency, rate_count, rate_per_ms, weight) values (?1, ?2, ?3, ?4, ?5)
on conflict (pattern) do update set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
                                    rate_per_ms = excluded.rate_per_ms, weight = excluded.weight
