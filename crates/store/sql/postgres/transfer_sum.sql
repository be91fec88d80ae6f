-- What both stores must agree on after a move: rows and a sum over their contents, table by table.
-- $1 what was added to workers' numbers
select 'lane', count(*), coalesce(sum(id % 1000003 * 7 + octet_length(queue || kind || limit_key)), 0)::bigint from stargate.lane
union all
select 'worker', count(*), coalesce(sum((id - $1::integer) % 1000003 * 7 + (extract(epoch from beat_at) * 1000000)::bigint % 1000003), 0)::bigint
  from stargate.worker where id > $1::integer
union all
select 'idempotency', count(*), coalesce(sum((extract(epoch from created_at) * 1000000)::bigint % 1000003 + octet_length(key || fingerprint)), 0)::bigint
  from stargate.idempotency
union all
select 'job_history', count(*), coalesce(sum(id % 1000003 * 7 + lane_id % 1000003 + state + attempt + last_seq
       + (extract(epoch from run_at) * 1000000)::bigint % 1000003 + (extract(epoch from finished_at) * 1000000)::bigint % 1000003 + octet_length(payload::text) + coalesce(octet_length(result::text), 0)
       + coalesce(octet_length(error::text), 0)), 0)::bigint from stargate.job_history
union all
select 'job', count(*), coalesce(sum(id % 1000003 * 7 + lane_id % 1000003 + stage + attempt + last_seq
       + (extract(epoch from run_at) * 1000000)::bigint % 1000003 + coalesce(abs(token % 1000003), 0) + octet_length(payload::text)
       + coalesce(octet_length(unique_key), 0) + coalesce(octet_length(error::text), 0)), 0)::bigint from stargate.job
union all
select 'job_event', count(*), coalesce(sum(job_id % 1000003 * 7 + seq + (extract(epoch from at) * 1000000)::bigint % 1000003 + octet_length(event) + octet_length(data::text)), 0)::bigint
  from stargate.job_event
union all
select 'job_parent', count(*), coalesce(sum(job_id % 1000003 * 7 + parent_id % 1000003), 0)::bigint from stargate.job_parent
union all
select 'job_cancel', count(*), coalesce(sum(job_id % 1000003 * 7 + (worker_id - $1::integer) % 1000003), 0)::bigint from stargate.job_cancel
union all
select 'source_link', count(*), coalesce(sum(job_id % 1000003 * 7 + stage + octet_length(source || item || mark || terms::text)), 0)::bigint
  from stargate.source_link
