-- Removes what nobody asks for any more: expired idempotency keys, and workers gone for longer than any history is kept.
-- Only on Postgres: two removals in one round trip (idempotency_purge.sql and worker_purge.sql on SQLite).
--
-- $1 now, $2 age in milliseconds, $3 limit
with keys as (
    delete from stargate.idempotency i where i.key = any (array(
        select i.key from stargate.idempotency i
         where i.created_at <= coalesce($1::timestamptz, now()) - interval '24 hours' limit $3::integer))
)
delete from stargate.worker w
 where w.id = any (array(
    select w.id from stargate.worker w
     where w.gone_at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 millisecond' limit $3::integer))
