-- Only here because a store is moved from SQLite to Postgres and not back.
-- Which job waits or waited for which. $1 the rows as a JSON array
with written as (
    insert into stargate.job_parent as t (job_id, parent_id)
    select r.job_id, r.parent_id
      from json_to_recordset($1::text::json) as r
           (job_id bigint, parent_id bigint)
    returning 1
)
select count(*) from written
