-- Sets the limits of a pattern.
insert into stargate.limit_rule (pattern, concurrency, rate_count, rate_per_ms, weight)
values ($1::text, $2::integer, $3::integer, $4::bigint, $5::integer)
on conflict (pattern) do update set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
    rate_per_ms = excluded.rate_per_ms, weight = excluded.weight
