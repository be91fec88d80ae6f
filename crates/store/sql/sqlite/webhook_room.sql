-- The repository of a new hook, and how many it has beside this one. ?1 repository (null: all), ?2 address
with r as materialized (select id from repo where name = ?1)
select (select id from r), (select count(*) from webhook where coalesce(repo_id, 0) = coalesce((select id from r), 0) and url <> ?2)
