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
union all
select 'kv', count(*), coalesce(sum(coalesce(version, 0) % 1000003
       + coalesce((extract(epoch from expires_at) * 1000000)::bigint, 0) % 1000003
       + coalesce((extract(epoch from updated_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(coalesce(key, '') || coalesce(value::text, '') || coalesce(request_id, '') || coalesce(request_hash, '')
       || coalesce(last_writer, '') || coalesce(purpose, '') || coalesce(spec_ref, ''))), 0)::bigint from stargate.kv
union all
select 'kv_override', count(*), coalesce(sum(coalesce(id, 0) % 1000003 + coalesce(version, 0) % 1000003
       + coalesce((extract(epoch from at) * 1000000)::bigint, 0) % 1000003
       + octet_length(coalesce(key, '') || coalesce(writer, '') || coalesce(spec_ref, '') || coalesce(before::text, '')
       || coalesce(after::text, ''))), 0)::bigint from stargate.kv_override
union all
select 'directive_run', count(*), coalesce(sum(coalesce(pages, 0) % 1000003 + coalesce(created, 0) % 1000003 + coalesce(updated, 0) % 1000003
       + coalesce(unchanged, 0) % 1000003 + coalesce(failed, 0) % 1000003 + cancel_asked::integer
       + source_ended::integer + coalesce(batch_lease, 0) % 1000003 + coalesce(batch_created, 0) % 1000003
       + coalesce(batch_updated, 0) % 1000003 + coalesce(batch_unchanged, 0) % 1000003
       + coalesce(batch_failed, 0) % 1000003 + coalesce(batch_cursor, 0) % 1000003
       + coalesce((extract(epoch from started_at) * 1000000)::bigint, 0) % 1000003
       + coalesce((extract(epoch from updated_at) * 1000000)::bigint, 0) % 1000003
       + coalesce((extract(epoch from ended_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(coalesce(id, '') || coalesce(directive, '') || coalesce(tenant_id, '') || coalesce(project_id, '')
       || coalesce(engine, '') || coalesce(workflow_id, '') || coalesce(worker, '') || coalesce(lease_key, '')
       || coalesce(outcome, '') || coalesce(cursor::text, '') || coalesce(beat::text, '')
       || coalesce(error, '') || coalesce(batch_request, ''))), 0)::bigint from stargate.directive_run
union all
select 'directive_quarantine', count(*), coalesce(sum(coalesce(id, 0) % 1000003 + coalesce(seen, 0) % 1000003
       + coalesce((extract(epoch from created_at) * 1000000)::bigint, 0) % 1000003
       + coalesce((extract(epoch from resolved_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(coalesce(directive, '') || coalesce(tenant_id, '') || coalesce(project_id, '')
       || coalesce(record_hash, '') || coalesce(run_id, '') || coalesce(record::text, '')
       || coalesce(cause, '') || coalesce(reason, '') || coalesce(entity_id, ''))), 0)::bigint from stargate.directive_quarantine
union all
select 'directive_outbox', count(*), coalesce(sum(coalesce(id, 0) % 1000003 + coalesce(attempts, 0) % 1000003
       + coalesce((extract(epoch from created_at) * 1000000)::bigint, 0) % 1000003
       + coalesce((extract(epoch from delivered_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(coalesce(topic, '') || coalesce(key, '') || coalesce(payload::text, '') || coalesce(problem, ''))), 0)::bigint from stargate.directive_outbox
union all
select 'directive_sink', count(*), coalesce(sum(coalesce((extract(epoch from created_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(coalesce(table_name, '') || coalesce(columns::text, ''))), 0)::bigint from stargate.directive_sink
union all
select 'stargate_audit', count(*), coalesce(sum(id % 1000003 * 7 + (extract(epoch from at) * 1000000)::bigint % 1000003
       + coalesce((extract(epoch from finished_at) * 1000000)::bigint, 0) % 1000003
       + octet_length(actor || coalesce(token_id, '') || role || action || target || detail::text || coalesce(request_id, '') || source
       || coalesce(outcome, ''))), 0)::bigint from stargate.stargate_audit
