-- Keeps a hook, or gives it new values.
-- $1 now, $2 repository (null: all), $3 address, $4 name of the secret, $5 events
insert into stargate.webhook (repo_id, url, secret_ref, events, created_at)
values ($2::bigint, $3::text, $4::text, $5::text::json, coalesce($1::timestamptz, now()))
on conflict (coalesce(repo_id, 0), url) do update set secret_ref = excluded.secret_ref, events = excluded.events
returning id
