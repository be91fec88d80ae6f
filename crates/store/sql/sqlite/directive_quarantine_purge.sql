-- Removes records that were dealt with long ago. ?1 until when, ?2 rows at most
delete from directive_quarantine
 where id in (select id from directive_quarantine where resolved_at < ?1 order by resolved_at limit ?2)
