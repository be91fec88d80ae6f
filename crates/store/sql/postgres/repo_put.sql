-- Enters a repository, or gives it another default branch, whose commit is then unknown.
-- $1 now, $2 name, $3 default branch
insert into stargate.repo as r (name, default_branch, created_at)
values ($2::text, $3::text, coalesce($1::timestamptz, now()))
on conflict (name) do update set default_branch = excluded.default_branch, default_oid = null, default_old_oid = null,
       default_event_id = null
 where r.default_branch <> excluded.default_branch
