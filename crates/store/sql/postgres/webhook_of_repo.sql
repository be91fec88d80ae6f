-- The hooks that may want to hear of a repository: its own and those of all. coalesce because the index is on that.
select w.id, r.name, w.url, w.secret_ref, w.events::text, w.created_at
  from stargate.webhook w left join stargate.repo r on r.id = w.repo_id where coalesce(w.repo_id, 0) in (0, $1::bigint) order by
         w.id
