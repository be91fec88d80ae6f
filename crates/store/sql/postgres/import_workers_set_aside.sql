-- Only here because a store is moved from SQLite to Postgres and not back.
-- Sets numbers aside for the workers of the old store, after those of workers that wait here already; answers what is
-- to be added to the old numbers. $1 the last number in the old store
select b.offset_, setval(pg_get_serial_sequence('stargate.worker', 'id'), greatest(b.offset_ + $1::bigint, 1),
                         b.offset_ + $1::bigint > 0)
  from (select case when s.is_called then s.last_value else 0 end as offset_ from stargate.worker_id_seq s) b
