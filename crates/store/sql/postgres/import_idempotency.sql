-- Only here because a store is moved from SQLite to Postgres and not back.
-- What keys of clients stand for. $1 the rows as a JSON array
with written as (
    insert into stargate.idempotency as t (key, fingerprint, job_ids, created_at)
    select r.key, r.fingerprint, array(select i::bigint from json_array_elements_text(r.job_ids) i),
           'epoch'::timestamptz + r.created_at * interval '1 microsecond'
      from json_to_recordset($1::text::json) as r
           (key text, fingerprint text, job_ids json, created_at bigint)
    returning 1
)
select count(*) from written
