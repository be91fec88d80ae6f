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
union all
select 'repo', count(*), coalesce(sum(id % 1000003 * 7 + (extract(epoch from created_at) * 1000000)::bigint % 1000003 + coalesce((extract(epoch from pushed_at) * 1000000)::bigint, 0) % 1000003
       + coalesce(size_bytes, 0) % 1000003 + coalesce(default_event_id, 0) % 1000003
       + octet_length(name || default_branch || coalesce(default_oid, ''))), 0)::bigint from stargate.repo
union all
select 'push_event', count(*), coalesce(sum(id % 1000003 * 7 + repo_id % 1000003 + (extract(epoch from created_at) * 1000000)::bigint % 1000003
       + (extract(epoch from received_at) * 1000000)::bigint % 1000003 + coalesce((extract(epoch from processed_at) * 1000000)::bigint, 0) % 1000003
       + coalesce(epoch, 0) % 1000003 + octet_length(ref_name || old_oid || new_oid || request_id || coalesce(pusher, ''))), 0)::bigint
  from stargate.push_event
union all
select 'webhook', count(*), coalesce(sum(id % 1000003 * 7 + coalesce(repo_id, 0) % 1000003 + (extract(epoch from created_at) * 1000000)::bigint % 1000003
       + octet_length(url || coalesce(secret_ref, '') || events::text)), 0)::bigint from stargate.webhook
union all
select 'webhook_outbox', count(*), coalesce(sum(id % 1000003 * 7 + event_id % 1000003 + webhook_id % 1000003
       + (extract(epoch from created_at) * 1000000)::bigint % 1000003 + coalesce((extract(epoch from delivered_at) * 1000000)::bigint, 0) % 1000003), 0)::bigint
  from stargate.webhook_outbox
union all
select 'token', count(*), coalesce(sum((extract(epoch from created_at) * 1000000)::bigint % 1000003 + coalesce((extract(epoch from expires_at) * 1000000)::bigint, 0) % 1000003
       + coalesce((extract(epoch from last_used_at) * 1000000)::bigint, 0) % 1000003 + coalesce((extract(epoch from revoked_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(hash) + octet_length(id || name || grants::text)), 0)::bigint from stargate.token
