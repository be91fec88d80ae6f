-- The repository of a new hook, locked so that two hooks cannot both be the last; how many it has beside this one.
-- $1 repository (null: all), $2 address
with r as materialized (select id from stargate.repo where name = $1::text for no key update)
select (select id from r),
       (select count(*) from stargate.webhook where coalesce(repo_id, 0) = coalesce((select id from r), 0) and url <> $2::text)
