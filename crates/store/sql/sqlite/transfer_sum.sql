-- What both stores must agree on after a move: rows and a sum over their contents, table by table.
select 'lane', count(*), coalesce(sum(id % 1000003 * 7 + length(cast(queue || kind || limit_key as blob))), 0) from lane
union all
select 'worker', count(*), coalesce(sum(id % 1000003 * 7 + beat_at % 1000003), 0) from worker
union all
select 'idempotency', count(*), coalesce(sum(created_at % 1000003 + length(cast(key || fingerprint as blob))), 0) from idempotency
union all
select 'job_history', count(*), coalesce(sum(id % 1000003 * 7 + lane_id % 1000003 + state + attempt + last_seq + run_at % 1000003
       + finished_at % 1000003 + length(cast(payload as blob)) + coalesce(length(cast(result as blob)), 0)
       + coalesce(length(cast(error as blob)), 0)), 0) from job_history
union all
select 'job', count(*), coalesce(sum(id % 1000003 * 7 + lane_id % 1000003 + stage + attempt + last_seq + run_at % 1000003
       + coalesce(abs(token % 1000003), 0) + length(cast(payload as blob)) + coalesce(length(cast(unique_key as blob)), 0)
       + coalesce(length(cast(error as blob)), 0)), 0) from job
union all
select 'job_event', count(*), coalesce(sum(job_id % 1000003 * 7 + seq + at % 1000003 + length(cast(event || data as blob))), 0)
from job_event
union all
select 'job_parent', count(*), coalesce(sum(job_id % 1000003 * 7 + parent_id % 1000003), 0) from job_parent
union all
select 'job_cancel', count(*), coalesce(sum(job_id % 1000003 * 7 + worker_id % 1000003), 0) from job_cancel
union all
select 'source_link', count(*), coalesce(sum(job_id % 1000003 * 7 + stage + length(cast(source || item || mark || terms as blob))), 0)
from source_link
union all
select 'repo', count(*), coalesce(sum(id % 1000003 * 7 + created_at % 1000003 + coalesce(pushed_at, 0) % 1000003 + coalesce(size_bytes, 0) % 1000003
       + coalesce(default_event_id, 0) % 1000003 + length(cast(name || default_branch || coalesce(default_oid, '') as blob))), 0) from repo
union all
select 'push_event', count(*), coalesce(sum(id % 1000003 * 7 + repo_id % 1000003 + created_at % 1000003 + received_at % 1000003
       + coalesce(processed_at, 0) % 1000003 + coalesce(epoch, 0) % 1000003
       + length(cast(ref_name || old_oid || new_oid || request_id || coalesce(pusher, '') as blob))), 0) from push_event
union all
select 'webhook', count(*), coalesce(sum(id % 1000003 * 7 + coalesce(repo_id, 0) % 1000003 + created_at % 1000003
       + length(cast(url || coalesce(secret_ref, '') || events as blob))), 0) from webhook
union all
select 'webhook_outbox', count(*), coalesce(sum(id % 1000003 * 7 + event_id % 1000003 + webhook_id % 1000003 + created_at % 1000003
       + coalesce(delivered_at, 0) % 1000003), 0) from webhook_outbox
union all
select 'token', count(*), coalesce(sum(created_at % 1000003 + coalesce(expires_at, 0) % 1000003 + coalesce(last_used_at, 0) % 1000003
       + coalesce(revoked_at, 0) % 1000003 + length(hash) + length(cast(id || name || grants as blob))), 0) from token
union all
select 'kv', count(*), coalesce(sum(coalesce(version, 0) % 1000003 + coalesce(expires_at, 0) % 1000003 + coalesce(updated_at, 0) % 1000003
       + length(cast(coalesce(key, '') || coalesce(value, '') || coalesce(request_id, '') || coalesce(request_hash, '')
       || coalesce(last_writer, '') || coalesce(purpose, '') || coalesce(spec_ref, '') as blob))), 0) from kv
union all
select 'kv_override', count(*), coalesce(sum(coalesce(id, 0) % 1000003 + coalesce(version, 0) % 1000003 + coalesce(at, 0) % 1000003
       + length(cast(coalesce(key, '') || coalesce(writer, '') || coalesce(spec_ref, '') || coalesce(before, '')
       || coalesce(after, '') as blob))), 0) from kv_override
union all
select 'directive_run', count(*), coalesce(sum(coalesce(pages, 0) % 1000003 + coalesce(created, 0) % 1000003 + coalesce(updated, 0) % 1000003
       + coalesce(unchanged, 0) % 1000003 + coalesce(failed, 0) % 1000003 + coalesce(cancel_asked, 0) % 1000003
       + coalesce(source_ended, 0) % 1000003 + coalesce(batch_lease, 0) % 1000003
       + coalesce(batch_created, 0) % 1000003 + coalesce(batch_updated, 0) % 1000003
       + coalesce(batch_unchanged, 0) % 1000003 + coalesce(batch_failed, 0) % 1000003
       + coalesce(batch_cursor, 0) % 1000003 + coalesce(started_at, 0) % 1000003
       + coalesce(updated_at, 0) % 1000003 + coalesce(ended_at, 0) % 1000003
       + length(cast(coalesce(id, '') || coalesce(directive, '') || coalesce(tenant_id, '') || coalesce(project_id, '')
       || coalesce(engine, '') || coalesce(workflow_id, '') || coalesce(worker, '') || coalesce(lease_key, '')
       || coalesce(outcome, '') || coalesce(cursor, '') || coalesce(beat, '') || coalesce(error, '')
       || coalesce(batch_request, '') as blob))), 0) from directive_run
union all
select 'directive_quarantine', count(*), coalesce(sum(coalesce(id, 0) % 1000003 + coalesce(seen, 0) % 1000003 + coalesce(created_at, 0) % 1000003
       + coalesce(resolved_at, 0) % 1000003
       + length(cast(coalesce(directive, '') || coalesce(tenant_id, '') || coalesce(project_id, '')
       || coalesce(record_hash, '') || coalesce(run_id, '') || coalesce(record, '') || coalesce(cause, '')
       || coalesce(reason, '') || coalesce(entity_id, '') as blob))), 0) from directive_quarantine
union all
select 'directive_outbox', count(*), coalesce(sum(coalesce(id, 0) % 1000003 + coalesce(attempts, 0) % 1000003 + coalesce(created_at, 0) % 1000003
       + coalesce(delivered_at, 0) % 1000003
       + length(cast(coalesce(topic, '') || coalesce(key, '') || coalesce(payload, '') || coalesce(problem, '') as blob))), 0) from directive_outbox
union all
select 'directive_sink', count(*), coalesce(sum(coalesce(created_at, 0) % 1000003
       + length(cast(coalesce(table_name, '') || coalesce(columns, '') as blob))), 0) from directive_sink
union all
select 'stargate_audit', count(*), coalesce(sum(id % 1000003 * 7 + at % 1000003 + coalesce(finished_at, 0) % 1000003
       + length(cast(actor || coalesce(token_id, '') || role || action || target || detail || coalesce(request_id, '') || source
       || coalesce(outcome, '') as blob))), 0) from stargate_audit
