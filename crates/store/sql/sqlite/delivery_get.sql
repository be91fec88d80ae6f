-- An event, and the hook that is to hear of it.
select e.id, r.name, e.ref_name, e.old_oid, e.new_oid, e.pusher, e.request_id, e.epoch, e.received_at, e.created_at, e.processed_at,
       o.id, o.delivered_at, w.id, h.name, w.url, w.secret_ref, w.events, w.created_at
  from webhook_outbox o
  join push_event e on e.id = o.event_id join repo r on r.id = e.repo_id
  join webhook w on w.id = o.webhook_id left join repo h on h.id = w.repo_id
 where o.id = ?1
