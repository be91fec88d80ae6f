-- Only here because a store is moved from SQLite to Postgres and not back.
-- Timelines. $1 the rows as a JSON array
with written as (
    insert into stargate.job_event as t (job_id, seq, at, event, data)
    select r.job_id, r.seq, 'epoch'::timestamptz + r.at * interval '1 microsecond', r.event, r.data::json
      from json_to_recordset($1::text::json) as r
           (job_id bigint, seq integer, at bigint, event text, data text)
    returning 1
)
select count(*) from written
