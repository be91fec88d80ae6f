-- One event for some hooks, each once. $1 now, $2 event, $3 hooks
insert into stargate.webhook_outbox (event_id, webhook_id, created_at)
select $2::bigint, h.id, coalesce($1::timestamptz, now()) from unnest($3::bigint[]) with ordinality h (id, place) order by h.place
on conflict (event_id, webhook_id) do nothing
returning id
