-- Only here because a store is moved from SQLite to Postgres and not back.
-- Items of other queues that became jobs. $1 the rows as a JSON array
with written as (
    insert into stargate.source_link as t (source, item, job_id, stage, mark, terms)
    select r.source, r.item, r.job_id, r.stage, r.mark, r.terms::json
      from json_to_recordset($1::text::json) as r
           (source text, item text, job_id bigint, stage smallint, mark text, terms text)
    returning 1
)
select count(*) from written
