-- Removes what was delivered long ago. ?1 until when, ?2 rows at most
delete from directive_outbox
 where id in (select id from directive_outbox where delivered_at < ?1 order by delivered_at limit ?2)
