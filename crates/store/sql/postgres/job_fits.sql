-- Which of some jobs a search is about, newest first, and how large the payloads of all of them are. Letters A to Z are
-- compared without case, as both stores can. One row, because most rows are not what is looked for.
-- $1 ids, $2 code, $3 the text in lower case
with looked as materialized (
    select j.id, coalesce(j.error ->> 'code' = $2::text, $2::text is null)
           and ($3::text is null or strpos(lower(j.payload::text collate "C"), $3::text) > 0
                or coalesce(strpos(lower(j.unique_key), $3::text), 0) > 0
                or coalesce(strpos(lower((j.error ->> 'message') collate "C"), $3::text), 0) > 0) as fits,
           case when $3::text is null then pg_column_size(j.payload) else octet_length(j.payload::text) end as bytes
      from stargate.job j where j.id = any ($1::bigint[])
    union all
    select j.id, coalesce(j.error ->> 'code' = $2::text, $2::text is null)
           and ($3::text is null or strpos(lower(j.payload::text collate "C"), $3::text) > 0
                or coalesce(strpos(lower(j.unique_key), $3::text), 0) > 0
                or coalesce(strpos(lower((j.error ->> 'message') collate "C"), $3::text), 0) > 0),
           case when $3::text is null then pg_column_size(j.payload) else octet_length(j.payload::text) end
      from stargate.job_history j where j.id = any ($1::bigint[])
)
select coalesce(array_agg(l.id order by l.id desc) filter (where l.fits), '{}'), coalesce(sum(l.bytes), 0)::bigint
  from looked l
