-- A page by number. ?1 the number before it, ?2 rows at most
select w.id, r.name, w.url, w.secret_ref, w.events, w.created_at
  from webhook w left join repo r on r.id = w.repo_id where w.id > ?1 order by w.id limit ?2
