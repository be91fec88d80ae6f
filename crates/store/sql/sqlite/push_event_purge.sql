-- Removes a few old events; what their hooks were to hear is removed by webhook_outbox_purge.sql. ?1 processed until, ?2 rows at most
delete from push_event where id in (select id from push_event where processed_at <= ?1 order by processed_at, id limit ?2)
