-- Announces changes. $1 now, $2 topic, $3 keys, $4 payloads
insert into stargate.directive_outbox (topic, key, payload, created_at)
select $2::text, n.key, n.payload::json, w.now
  from unnest($3::text[], $4::text[]) n (key, payload)
 cross join (select coalesce($1::timestamptz, now()) as now) w
