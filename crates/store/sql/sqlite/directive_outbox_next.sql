-- Announcements that are not delivered. ?1 topic, ?2 above which number, ?3 rows at most
select id, topic, key, payload, created_at, attempts
  from directive_outbox where topic = ?1 and id > ?2 and delivered_at is null order by id limit ?3
