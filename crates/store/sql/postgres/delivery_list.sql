-- An event, and the hooks that are to hear of it. $1 event, $2 rows at most
select e.id, r.name, e.ref_name, e.old_oid, e.new_oid, e.pusher, e.request_id, e.epoch, e.received_at, e.created_at,
       e.processed_at,
       o.id, o.delivered_at, w.id, h.name, w.url, w.secret_ref, w.events::text, w.created_at
  from stargate.webhook_outbox o
  join stargate.push_event e on e.id = o.event_id join stargate.repo r on r.id = e.repo_id
  join stargate.webhook w on w.id = o.webhook_id left join stargate.repo h on h.id = w.repo_id
 where o.event_id = $1::bigint order by o.id limit $2::bigint
