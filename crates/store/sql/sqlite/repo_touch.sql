-- The repository of a push, entered if it is new. Another default branch makes its commit unknown.
-- ?1 now, ?2 name, ?3 default branch (null: as it was), ?4 default branch of a new one
insert into repo (name, default_branch, pushed_at, created_at) values (?2, coalesce(?3, ?4), ?1, ?1)
on conflict (name) do update set pushed_at = excluded.pushed_at,
    default_branch = coalesce(?3, default_branch),
    default_oid = iif(default_branch = coalesce(?3, default_branch), default_oid, null),
    default_old_oid = iif(default_branch = coalesce(?3, default_branch), default_old_oid, null),
    default_event_id = iif(default_branch = coalesce(?3, default_branch), default_event_id, null)
returning id
