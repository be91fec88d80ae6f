-- Which of some jobs a search is about, and how large their payloads are. Letters A to Z are compared without case, as
-- both stores can. $1 ids, $2 code, $3 the text in lower case
select j.id, coalesce(j.error ->> 'code' = $2::text, $2::text is null)
       and ($3::text is null or strpos(lower(j.payload::text collate "C"), $3::text) > 0
            or coalesce(strpos(lower(j.unique_key), $3::text), 0) > 0
            or coalesce(strpos(lower((j.error ->> 'message') collate "C"), $3::text), 0) > 0),
       case when $3::text is null then pg_column_size(j.payload) else octet_length(j.payload::text) end::bigint
  from stargate.job j where j.id = any ($1::bigint[])
union all
select j.id, coalesce(j.error ->> 'code' = $2::text, $2::text is null)
       and ($3::text is null or strpos(lower(j.payload::text collate "C"), $3::text) > 0
            or coalesce(strpos(lower(j.unique_key), $3::text), 0) > 0
            or coalesce(strpos(lower((j.error ->> 'message') collate "C"), $3::text), 0) > 0),
       case when $3::text is null then pg_column_size(j.payload) else octet_length(j.payload::text) end::bigint
  from stargate.job_history j where j.id = any ($1::bigint[])
