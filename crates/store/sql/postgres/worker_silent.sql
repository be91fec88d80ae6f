-- Locks the workers some of whose leases may have expired. One that is beating, claiming or being looked at by
-- somebody else right now is left out.
-- Only on Postgres: SQLite has a single writer and locks nothing (worker_here.sql).
select w.id from stargate.worker w
 where w.gone_at is null
   and w.beat_at + w.lease_min_ms * interval '1 millisecond' <= coalesce($1::timestamptz, now())
 order by w.id
   for update skip locked
