-- The hooks that may want to hear of a repository: its own and those of all. coalesce because the index is on that.
select w.id, r.name, w.url, w.secret_ref, w.events, w.created_at
  from webhook w left join repo r on r.id = w.repo_id where coalesce(w.repo_id, 0) in (0, ?1) order by w.id
