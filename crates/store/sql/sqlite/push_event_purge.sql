-- Removes a few old events, but no head of a ref that is there; what their hooks were to hear is removed by webhook_outbox_purge.sql. ?1 processed until, ?2 rows at most
delete from push_event where id in (select id from push_event
 where processed_at <= ?1 and (is_head = 0 or ltrim(new_oid, '0') = '') order by processed_at, id limit ?2)
