-- Only here because a store is moved from SQLite to Postgres and not back.
-- The present use of each key. SQLite counts virtual time in millionths. $1 the rows as a JSON array
with written as (
    insert into stargate.limit_key as t (key, concurrency, rate_count, rate_per_ms, weight, running, tokens, refilled_at, vtime)
    select r.key, r.concurrency, r.rate_count, r.rate_per_ms, r.weight, r.running, case when r.rate_count is not null
           then r.tokens end, 'epoch'::timestamptz + r.refilled_at * interval '1 microsecond', r.vtime / 1e6
      from json_to_recordset($1::text::json) as r
           (key text, concurrency integer, rate_count integer, rate_per_ms bigint, weight integer, running integer,
            tokens double precision, refilled_at bigint, vtime double precision)
    on conflict (key) do update set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
        rate_per_ms = excluded.rate_per_ms, weight = excluded.weight, running = excluded.running,
        tokens = excluded.tokens, refilled_at = excluded.refilled_at, vtime = greatest(t.vtime, excluded.vtime)
    returning 1
)
select count(*) from written
