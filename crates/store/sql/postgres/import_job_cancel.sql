-- Only here because a store is moved from SQLite to Postgres and not back.
-- Cancellations that workers have yet to hear of. $1 the rows as a JSON array, $2 what is added to workers' numbers
with written as (
    insert into stargate.job_cancel as t (worker_id, job_id)
    select r.worker_id + $2::integer, r.job_id
      from json_to_recordset($1::text::json) as r
           (worker_id integer, job_id bigint)
    returning 1
)
select count(*) from written
