-- A page by name. ?1 the name before it, ?2 rows at most
select id, name, default_branch, default_oid, size_bytes, objects, sized_at, pushed_at, created_at
  from repo where name > ?1 order by name limit ?2
