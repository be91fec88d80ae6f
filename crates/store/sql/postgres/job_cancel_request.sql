-- Asks the workers of running jobs for their end; once, however often it is asked. $1 now, $2 ids, $3 who notifies
with asked as (
    update stargate.job j set cancel_requested = true, last_seq = j.last_seq + 1
     where j.id = any ($2::bigint[]) and j.stage = 3 and not j.cancel_requested
    returning j.id, j.worker_id, j.last_seq
), told as (
    insert into stargate.job_event (job_id, seq, at, event, data)
    select a.id, a.last_seq, coalesce($1::timestamptz, now()), 'cancel:requested', '{}' from asked a
), noted as (
    insert into stargate.job_cancel (worker_id, job_id) select a.worker_id, a.id from asked a on conflict do nothing
)
select a.id, pg_notify('stargate_jobs', $3::text)::text from asked a
