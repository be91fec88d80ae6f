-- Only here because SQLite checks no foreign keys. What hooks were to hear of the events that push_event_purge.sql removes.
-- ?1 processed until, ?2 rows at most
delete from webhook_outbox where event_id in (select id from push_event
 where processed_at <= ?1 and (is_head = 0 or ltrim(new_oid, '0') = '') order by processed_at, id limit ?2)
