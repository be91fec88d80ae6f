-- Announcements that are not delivered. $1 topic, $2 above which number, $3 rows at most
select id, topic, key, payload::text, created_at, attempts
  from stargate.directive_outbox
 where topic = $1::text and id > $2::bigint and delivered_at is null order by id limit $3::bigint
