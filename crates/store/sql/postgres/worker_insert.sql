-- Enters a worker; its lease begins now.
insert into stargate.worker (name, kinds, queues, concurrency, lease_min_ms, lease_max_ms, started_at, beat_at)
select $2::text, $3::text[], $4::text[], $5::integer, $6::integer, $7::integer, t.now, t.now
  from (select coalesce($1::timestamptz, now()) as now) t
returning id
