-- The repository of a push, entered if it is new. Another default branch makes its commit unknown.
-- $1 now, $2 name, $3 default branch (null: as it was), $4 default branch of a new one
insert into stargate.repo as r (name, default_branch, pushed_at, created_at)
values ($2::text, coalesce($3::text, $4::text), coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now()))
on conflict (name) do update set pushed_at = excluded.pushed_at,
    default_branch = coalesce($3::text, r.default_branch),
    default_oid = case when r.default_branch = coalesce($3::text, r.default_branch) then r.default_oid end,
    default_old_oid = case when r.default_branch = coalesce($3::text, r.default_branch) then r.default_old_oid end,
    default_event_id = case when r.default_branch = coalesce($3::text, r.default_branch) then r.default_event_id end
returning r.id
