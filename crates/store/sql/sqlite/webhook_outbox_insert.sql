-- One event for one hook, once. ?1 now, ?2 event, ?3 hook
insert into webhook_outbox (event_id, webhook_id, created_at) values (?2, ?3, ?1)
on conflict (event_id, webhook_id) do nothing
returning id
