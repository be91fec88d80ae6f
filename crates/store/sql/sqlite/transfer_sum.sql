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
