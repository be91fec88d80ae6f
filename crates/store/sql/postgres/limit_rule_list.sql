-- The limits, most specific first.
select r.pattern, r.concurrency, r.rate_count, r.rate_per_ms, r.weight
  from stargate.limit_rule r
 order by right(r.pattern, 1) = '*', length(r.pattern) desc, r.pattern
