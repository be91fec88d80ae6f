-- The present use of one key.
select k.key, k.running, k.concurrency, k.rate_count, k.rate_per_ms, k.weight,
       least(k.rate_count, coalesce(k.tokens, k.rate_count) + k.rate_count
             * greatest(extract(epoch from coalesce($1::timestamptz, now()) - k.refilled_at), 0)::double precision * 1000 / k.rate_per_ms)
  from stargate.limit_key k where k.key = $2::text and k.key <> ''
