-- The events of refs from the first on that began elsewhere than its ref was believed to be. $1 the repository, $2 the number after which to begin, $3 rows at most
select e.id, e.ref_name, e.old_oid, e.new_oid, e.request_id, e.follows
  from (select repo_id, ref_name, min(id) as first from stargate.push_event
         where follows is not null and repo_id = (select id from stargate.repo where name = $1::text)
         group by repo_id, ref_name) t
  join stargate.push_event e on e.repo_id = t.repo_id and e.id >= t.first and e.ref_name = t.ref_name
 where e.id > $2::bigint
 order by e.id limit $3::bigint
