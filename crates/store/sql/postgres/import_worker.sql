-- Only here because a store is moved from SQLite to Postgres and not back.
-- Workers: they cannot write to the old store any more, so their leases run out here. $1 the rows as a JSON array, $2 what is added to workers' numbers
with written as (
    insert into stargate.worker as t (id, name, kinds, queues, concurrency, lease_min_ms, lease_max_ms, started_at, beat_at, gone_at)
    overriding system value
    select r.id + $2::integer, r.name, array(select json_array_elements_text(r.kinds)), array(select
           json_array_elements_text(r.queues)), r.concurrency, greatest(r.lease_min_ms, 1), greatest(r.lease_max_ms,
           r.lease_min_ms, 1), 'epoch'::timestamptz + r.started_at * interval '1 microsecond', 'epoch'::timestamptz +
           r.beat_at * interval '1 microsecond', 'epoch'::timestamptz + r.gone_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (id integer, name text, kinds json, queues json, concurrency integer, lease_min_ms integer, lease_max_ms
            integer, started_at bigint, beat_at bigint, gone_at bigint)
    returning 1
)
select count(*) from written
