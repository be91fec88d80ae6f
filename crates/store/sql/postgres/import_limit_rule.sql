-- Only here because a store is moved from SQLite to Postgres and not back.
-- Limits. $1 the rows as a JSON array
with written as (
    insert into stargate.limit_rule as t (pattern, concurrency, rate_count, rate_per_ms, weight)
    select r.pattern, r.concurrency, r.rate_count, r.rate_per_ms, r.weight
      from json_to_recordset($1::text::json) as r
           (pattern text, concurrency integer, rate_count integer, rate_per_ms bigint, weight integer)
    on conflict (pattern) do update set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
        rate_per_ms = excluded.rate_per_ms, weight = excluded.weight
    returning 1
)
select count(*) from written
